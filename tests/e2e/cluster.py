# SPDX-License-Identifier: Apache-2.0
"""cluster.py - real daemons for end-to-end tests: started in a folder of their own on any free
ports, stopped at the end, with a check that they left nothing behind."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

BIN = os.environ["KVP_TEST_BIN"]
BLOCKS = os.environ["KVP_TEST_BLOCKS"]
DEADLINE_S = 20


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


def wait_for(what, condition):
    """Waits for a condition; there is no event to wait on outside the processes."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("waited %d s for %s" % (DEADLINE_S, what))


class Daemon:
    def __init__(self, cluster, name, program, options, host):
        self.cluster, self.name, self.host = cluster, name, host
        self.ready_path = os.path.join(cluster.dir, name + ".ready")
        self.log_path = os.path.join(cluster.dir, name + ".log")
        self.argv = host.prefix() + [
            os.path.join(BIN, program), "--ready-file=" + self.ready_path] + options
        self.start()

    def start(self, env=None):
        if os.path.exists(self.ready_path):
            os.unlink(self.ready_path)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stderr=log,
                                            env=dict(os.environ, **(env or {})))
        wait_for(self.name + " to be ready", self.ready)

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError("%s ended with %d:\n%s" % (
                self.name, self.process.returncode, self.log()))
        return os.path.exists(self.ready_path)

    def log(self):
        return open(self.log_path, encoding="utf-8", errors="replace").read()

    def address(self, what="control"):
        for line in open(self.ready_path, encoding="utf-8"):
            if line.split()[0] == what:
                return line.split()[1]
        raise AssertionError("%s tells no %s in %s" % (self.name, what, self.ready_path))

    def metrics(self):
        text = self.host.fetch("http://%s/metrics" % self.address("metrics"))
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in text.splitlines() if line and not line.startswith("#")}

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        status = self.process.wait(timeout=DEADLINE_S)
        assert status == 0, "%s ended with %d:\n%s" % (self.name, status, self.log())
        assert time.monotonic() - start < 5, self.name + " took over 5 s to stop"

    def kill(self):
        self.process.kill()
        self.process.wait()


class Host:
    """This machine itself."""

    def prefix(self):
        return []

    def addr(self):
        return "127.0.0.1"

    def fetch(self, url):
        return urllib.request.urlopen(url, timeout=5).read().decode()


class Cluster:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="kvpool-e2e.")
        self.tag = "e2e-%d" % os.getpid()
        self.daemons = []
        self.here = Host()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is not None:
                for daemon in self.daemons:
                    print("--- %s\n%s" % (daemon.name, daemon.log()[-4000:]))
            else:
                self.stop()
        finally:
            for daemon in self.daemons:
                daemon.kill()
            for name in self.shared_memory():  # only after a failure
                os.unlink("/dev/shm/" + name)
            shutil.rmtree(self.dir)

    def shared_memory(self):
        return [name for name in os.listdir("/dev/shm") if self.tag in name]

    def meta(self, name="meta", options=(), host=None):
        host = host or self.here
        daemon = Daemon(self, name, "kvpool-meta", [
            "--listen=%s:0" % host.addr(), "--metrics.listen=%s:0" % host.addr(),
            "--local=%s/%s.sock" % (self.dir, name)] + list(options), host)
        self.daemons.append(daemon)
        return daemon

    def node(self, name, metas, options=(), host=None):
        host = host or self.here
        daemon = Daemon(self, name, "kvpoold", [
            "--name=%s-%s" % (self.tag, name), "--listen=%s:0" % host.addr(),
            "--ofi.listen=%s:0" % host.addr(), "--metrics.listen=%s:0" % host.addr(),
            "--local=%s/%s.sock" % (self.dir, name),
            "--shm.listen=%s/%s-shm.sock" % (self.dir, name),
            "--data_dir=%s/%s" % (self.dir, name), "--store.keep=false",
            "--metas=" + ",".join(m.address() for m in metas)] + list(options), host)
        self.daemons.append(daemon)
        return daemon

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.stop()
        assert not self.shared_memory(), "left in /dev/shm: %s" % self.shared_memory()
        left = [n for n in os.listdir(self.dir) if n.endswith((".sock", ".ready"))]
        assert not left, "left behind: %s" % left

    def blocks(self, op, meta, node, host=None, expect=0, **options):
        """Runs the engine's stand-in; returns its counts."""
        host = host or self.here
        argv = host.prefix() + [BLOCKS, op, "--meta=" + meta.address(),
                                "--node=" + (node if isinstance(node, str) else node.address())]
        argv += ["--%s=%s" % (k, v) for k, v in options.items()]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == expect, "%s: %d\n%s" % (argv, done.returncode, done.stderr)
        counts = json.loads(done.stdout)
        counts["log"] = done.stderr
        return counts
