# SPDX-License-Identifier: Apache-2.0
# One target a decoder. New inputs go to the build tree; corpus/NAME has the seeds.
foreach(name IN ITEMS frame messages keys announce addr opt entry tier trace)
	add_executable(fuzz_${name} ${CMAKE_CURRENT_LIST_DIR}/fuzz_${name}.c)
	set_target_properties(fuzz_${name} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
	target_link_libraries(fuzz_${name} PRIVATE kvp_flags kvp_proto kvp_hal)
	target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
	set(found ${PROJECT_BINARY_DIR}/fuzz/corpus/${name})
	file(MAKE_DIRECTORY ${found})
	add_test(NAME fuzz.${name}
		COMMAND fuzz_${name} -max_total_time=20 -rss_limit_mb=512 -close_fd_mask=0
			-print_final_stats=1 -artifact_prefix=${PROJECT_BINARY_DIR}/fuzz/${name}-
			${found} ${CMAKE_CURRENT_LIST_DIR}/corpus/${name})
	set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 120 LABELS fuzz
		ENVIRONMENT ASAN_OPTIONS=quarantine_size_mb=32)
endforeach()
target_sources(fuzz_trace PRIVATE ${PROJECT_SOURCE_DIR}/bench/trace.c)
target_link_libraries(fuzz_trace PRIVATE PkgConfig::jansson PkgConfig::zlib)
target_sources(fuzz_tier PRIVATE
	${PROJECT_SOURCE_DIR}/pool/store/index.c ${PROJECT_SOURCE_DIR}/pool/store/tier.c)
