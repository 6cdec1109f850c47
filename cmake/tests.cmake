# The C++ tests: one executable of the *_test.cpp files, which stand beside the code they test.
find_package(GTest REQUIRED)
enable_testing()

add_executable(cpp_tests
  csrc/cache/entry_test.cpp
  csrc/cache/folder_test.cpp
  csrc/exec/repeats_test.cpp
  csrc/lowerings/call_test.cpp
  csrc/pjrt/client_test.cpp
  csrc/stablehlo/emitter_test.cpp
  csrc/tensor/view_test.cpp)
target_include_directories(cpp_tests PRIVATE csrc ${PJRT_INCLUDE})
target_link_directories(cpp_tests PRIVATE ${TORCH_ROOT}/lib)
target_link_libraries(cpp_tests PRIVATE
  torch_headers pjrt stablehlo cache lowerings tensor exec GTest::gtest_main c10 torch_cpu ${CMAKE_DL_LIBS})
set_target_properties(cpp_tests PROPERTIES BUILD_RPATH ${TORCH_ROOT}/lib)

include(GoogleTest)
gtest_discover_tests(cpp_tests)
