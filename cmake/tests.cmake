# The C++ tests, where GoogleTest is installed: one executable of the *_test.cpp files, which stand beside the code they
# test. tests/test_cpp.py builds and runs it.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  return()
endif()

add_executable(cpp_tests EXCLUDE_FROM_ALL
  csrc/cache/entry_test.cpp
  csrc/cache/folder_test.cpp
  csrc/exec/over_stacks_test.cpp
  csrc/exec/repeats_test.cpp
  csrc/lowerings/call_test.cpp
  csrc/pjrt/client_test.cpp
  csrc/pjrt/wide_division_test.cpp
  csrc/stablehlo/emitter_test.cpp
  csrc/tensor/view_test.cpp)
target_include_directories(cpp_tests PRIVATE csrc ${PJRT_INCLUDE})
target_link_directories(cpp_tests PRIVATE ${TORCH_ROOT}/lib)
target_link_libraries(cpp_tests PRIVATE
  torch_headers pjrt stablehlo cache lowerings tensor exec GTest::gtest_main c10 torch_cpu ${CMAKE_DL_LIBS})
set_target_properties(cpp_tests PROPERTIES BUILD_RPATH ${TORCH_ROOT}/lib)
