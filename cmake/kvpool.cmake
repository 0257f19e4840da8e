# SPDX-License-Identifier: Apache-2.0
# How this project's libraries, programs and tests are made.

option(KVP_ASAN "AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(KVP_TSAN "ThreadSanitizer" OFF)
option(KVP_FUZZ "build the libFuzzer targets (clang)" OFF)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)

# Flags of our own code only: generated code and headers of others are SYSTEM or get none.
add_library(kvp_flags INTERFACE)
target_compile_options(kvp_flags INTERFACE -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes
	-Wmissing-prototypes -Wpointer-arith -Wvla -Wformat=2 -Wundef -fno-strict-aliasing)
target_compile_definitions(kvp_flags INTERFACE _GNU_SOURCE KVP_VERSION="${PROJECT_VERSION}")
target_include_directories(kvp_flags INTERFACE ${PROJECT_SOURCE_DIR}
	${PROJECT_SOURCE_DIR}/client/include)

if(KVP_ASAN)
	add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all
		-fno-omit-frame-pointer)
	add_link_options(-fsanitize=address,undefined)
endif()
if(KVP_TSAN)
	# -Wno-tsan: the tool does not see fences; what they order is checked by other means, too.
	add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
	add_link_options(-fsanitize=thread)
endif()
if(KVP_FUZZ)
	add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
	add_link_options(-fsanitize=address,undefined)
endif()

# kvp_library(NAME SOURCES a.c b.c LINKS other libs)   a static library of one folder
function(kvp_library name)
	cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
	add_library(${name} STATIC ${arg_SOURCES})
	target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:kvp_flags> PUBLIC ${arg_LINKS})
endfunction()

# kvp_program(NAME SOURCES ... LINKS ...)   a binary in bin/, installed
function(kvp_program name)
	cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
	add_executable(${name} ${arg_SOURCES})
	target_link_libraries(${name} PRIVATE kvp_flags ${arg_LINKS})
	install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# Tests of the sanitizer builds stand beside the others in one ctest run: their names say so.
set(KVP_TEST_PREFIX "")
if(KVP_ASAN)
	set(KVP_TEST_PREFIX "asan.")
elseif(KVP_TSAN)
	set(KVP_TEST_PREFIX "tsan.")
endif()

# kvp_test(NAME SOURCES ... LINKS ... [LABELS l] [TIMEOUT s])   a cmocka program in ctest; 77 skips
function(kvp_test name)
	cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINKS;LABELS" ${ARGN})
	string(REPLACE "." "_" target "test_${name}")
	add_executable(${target} ${arg_SOURCES})
	set_target_properties(${target} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
	target_link_libraries(${target} PRIVATE kvp_flags ${arg_LINKS} PkgConfig::cmocka)
	set(name ${KVP_TEST_PREFIX}${name})
	add_test(NAME ${name} COMMAND ${target})
	if(NOT arg_TIMEOUT)
		set(arg_TIMEOUT 60)
	endif()
	set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${arg_TIMEOUT}
		LABELS "${arg_LABELS}")
	if(KVP_TSAN)
		set_property(TEST ${name} PROPERTY ENVIRONMENT
			TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp)
	endif()
endfunction()

# kvp_script_test(NAME COMMAND ... [LABELS l] [TIMEOUT s])   a script against the binaries, only in
# builds without sanitizers
function(kvp_script_test name)
	cmake_parse_arguments(arg "SERIAL" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
	if(KVP_TEST_PREFIX OR KVP_FUZZ)
		return()
	endif()
	add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
	if(NOT arg_TIMEOUT)
		set(arg_TIMEOUT 60)
	endif()
	set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${arg_TIMEOUT}
		LABELS "${arg_LABELS}" RUN_SERIAL ${arg_SERIAL})
endfunction()
