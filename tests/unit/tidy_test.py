#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy_test.py - tidy.py finds each kind of breach in a small tree, and nothing in a clean one."""
import os
import subprocess
import sys
import tempfile
import unittest

TIDY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tidy.py")
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"

# path, text after the licence line, what tidy says (None: nothing)
CASES = [
    ("hal/os/a.c", '#include "hal/base/x.h"\n', None),
    ("hal/base/a.c", '#include "hal/os/x.h"\n', "hal/base may not include hal/os/x.h"),
    ("hal/mem/a.c", '#include "transport/xport.h"\n', "may not include transport/xport.h"),
    ("transport/ofi/a.c", '#include "transport/xport.h"\n', None),
    ("transport/ofi/a.c", '#include "transport/shm/shm.h"\n', "may not include transport/shm"),
    ("transport/ofi/a.c", '#include "transport/proto/slot.h"\n', "may not include transport/pro"),
    ("transport/rpc/a.c", '#include "transport/proto/kvpool.pb-c.h"\n', None),
    ("transport/registry.c", '#include "transport/ofi/ofi.h"\n', None),
    ("transport/a.c", '#include "pool/node/node.h"\n', "transport may not include pool/"),
    ("pool/store/a.c", '#include "transport/proto/slot.h"\n', None),
    ("pool/store/a.c", '#include "transport/proto/wire.h"\n', "may not include transport/proto/w"),
    ("pool/node/a.c", '#include "pool/store/store.h"\n#include "transport/rpc/rpc.h"\n', None),
    ("pool/node/a.c", '#include "pool/meta/meta.h"\n', "may not include pool/meta/meta.h"),
    ("client/a.c", '#include <kvpool/kvpool.h>\n#include "client/x.h"\n', None),
    ("client/a.c", '#include "pool/store/store.h"\n', "client may not include pool/"),
    ("client/ctl/a.c", '#include <kvpool/admin.h>\n#include "hal/base/opt.h"\n', None),
    ("client/ctl/a.c", '#include "client/internal.h"\n', "client/ctl may not include client/int"),
    ("client/ctl/a.c", '#include "hal/os/env.h"\n', "client/ctl may not include hal/os"),
    ("bench/a.c", '#include "pool/store/evict.h"\n', None),
    ("bench/a.c", '#include "pool/store/store.h"\n', "bench may not include pool/store/store.h"),
    ("bench/a.c", "int\nf(void)\n{\n\treturn time(0);\n}\n", "only hal/ may call this"),
    ("bench/a.c", "int\nf(void)\n{\n\te->random(0) /* time() */ + g(\"time(\");\n}\n", None),
    ("pool/a.c", "int\nf(void)\n{\n\treturn socket(1, 2, 3);\n}\n", "only transport/ may open"),
    ("transport/a.c", "int\nf(void)\n{\n\treturn socket(1, 2, 3);\n}\n", None),
    ("pool/a.c", "#include <assert.h>\n", "use hal/base/assert.h"),
    ("pool/a.c", "static int count;\n", "a mutable global"),
    ("pool/a.c", "int count = 3;\n", "a mutable global"),
    ("pool/a.c", "struct x table[3];\n", "a mutable global"),
    ("pool/a.c", "int\nf(void)\n{\n\tstatic int n = 0;\n\treturn n++;\n}\n", "a mutable global"),
    ("pool/a.c", "struct x;\nstatic const int count = 3;\nstatic int f(int x);\n", None),
    ("pool/a.c", "int\nf(void)\n{\n" + "\tg();\n" * 70 + "}\n", None),
    ("pool/a.c", "int\nf(void)\n{\n" + "\tg();\n" * 71 + "}\n", "function body has 71 lines"),
    ("pool/a.c", "\n" * 1000, "file has 1001 lines"),
    ("pool/a.c", "/*" + "\t" * 12 + "x*/\n", None),
    ("pool/a.c", "/*" + "\t" * 12 + "xxx*/\n", "more than 100 columns"),
    ("pool/a.h", "int f(size_t x);\n", "unknown type name"),
    ("client/include/kvpool/a.h", "int f(int class);\n", "client/include/kvpool/a.h"),
    ("pool/a.c", "int x( void );\n", "not formatted"),
]


def tidy(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            path = os.path.join(root, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run([sys.executable, TIDY, root], stdout=subprocess.PIPE, text=True,
                              check=False)
    return done.returncode, done.stdout


class Tidy(unittest.TestCase):
    def test_cases(self):
        for path, text, says in CASES:
            with self.subTest(path=path, text=text[:60]):
                readme = os.path.join(os.path.dirname(path), "README.md")
                code, out = tidy({path: SPDX + text, readme: "# here\n"})
                if says == "not formatted" and "skipped: form" in out:
                    continue
                if says is None:
                    # The bodies here are for this test, not for clang-format.
                    out = "\n".join(line for line in out.splitlines()
                                    if "not formatted" not in line and "skipped" not in line)
                    self.assertEqual(out, "")
                else:
                    self.assertEqual(code, 1)
                    self.assertIn(says, out)

    def test_licence(self):
        self.assertIn("a.c:1: the first line", tidy({"pool/a.c": "\n"})[1])
        script = "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"
        code, _ = tidy({"tests/a.sh": script, "tests/README.md": ""})
        self.assertEqual(code, 0)

    def test_readme(self):
        self.assertIn("pool/README.md:1: missing", tidy({"pool/a.c": SPDX})[1])
        self.assertIn("README has 41 lines",
                      tidy({"pool/a.c": SPDX, "pool/README.md": "x\n" * 41})[1])

    def test_stale(self):
        row = 'KVP_ERR(NOKEY, 5000, OP, NEVER, "no such key")\n'
        _, out = tidy({"hal/base/err.def": SPDX + row, "hal/base/README.md": ""})
        self.assertIn("client/include/kvpool/errors.h:1: stale", out)
        self.assertIn("docs/errors.md:1: stale", out)


if __name__ == "__main__":
    unittest.main()
