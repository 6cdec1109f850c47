"""The estimate, on programs written out here: no compiler is needed."""

import pytest
from google.protobuf import text_format

from torch_tpu.aot import layout, protos
from torch_tpu.aot.estimate import HBM_EFFICIENCY, LAUNCH, estimate
from torch_tpu.aot.hardware import parse
from torch_tpu.aot.hlo import Module, plain_bytes, shape_bytes

BF16, F32, S32, TUPLE = 16, 11, 4, 13
TARGET = parse("v6e")
CHIP = TARGET.chip


def array(dims, dtype=BF16, space=0, tiled=False):
    order = "".join(f" minor_to_major: {i}" for i in reversed(range(len(dims))))
    tiles = " tiles { dimensions: 8 dimensions: 128 }" if tiled else ""
    sizes = "".join(f" dimensions: {d}" for d in dims)
    return f"shape {{ element_type: {dtype}{sizes} layout {{{order} memory_space: {space}{tiles} }} }}"


def module(entry, others=""):
    text = f"entry_id: 1 {others} computations {{ id: 1 root_id: 99 {entry} }}"
    return Module(text_format.Parse(text, protos.messages().Module()))


def instruction(id_, opcode, shape, more=""):
    return f'instructions {{ id: {id_} name: "i{id_}" opcode: "{opcode}" {shape} {more} }}'


def product(precision=0, dtype=BF16, n=1024):
    dims = "dot_dimensions { lhs_contracting: 1 rhs_contracting: 0 }"
    return module(
        instruction(1, "parameter", array([n, n], dtype))
        + instruction(2, "parameter", array([n, n], dtype), "parameter_number: 1")
        + instruction(
            99,
            "dot",
            array([n, n], dtype),
            f"operand_ids: 1 operand_ids: 2 {dims} precision {{ operand_precision: {precision} }}",
        )
    )


def test_a_product_takes_its_operations_at_the_usual_share_of_the_peak():
    e = estimate(product(n=4096), TARGET)
    assert e.flops == 2 * 4096**3
    assert e.expected == pytest.approx(2 * 4096**3 / (CHIP.mxu_share * CHIP.flops) + LAUNCH)
    assert e.lower == pytest.approx(2 * 4096**3 / CHIP.flops)
    assert e.lower < e.expected < e.upper
    assert e.bound == "MXU"


@pytest.mark.parametrize(("precision", "passes"), [(0, 1), (1, 3), (2, 6)])
def test_float32_products_take_passes_by_their_precision(precision, passes):
    e = estimate(product(precision, F32), TARGET)
    assert e.passes == passes * e.flops


def test_elementwise_work_takes_its_bytes():
    n = 1 << 24
    m = module(
        instruction(1, "parameter", array([n], F32)) + instruction(99, "negate", array([n], F32), "operand_ids: 1")
    )
    e = estimate(m, TARGET)
    assert e.bytes == 2 * 4 * n
    assert e.expected == pytest.approx(8 * n / (HBM_EFFICIENCY * CHIP.hbm_bandwidth) + LAUNCH)
    assert e.bound == "HBM"


def test_a_place_that_is_reserved_takes_nothing():
    n = 1 << 24
    e = estimate(
        module(instruction(99, "custom-call", array([n], F32), 'custom_call_target: "AllocateBuffer"')), TARGET
    )
    assert (e.bytes, e.expected, e.uncosted_calls) == (0, 0, {})


def test_values_in_fast_memory_are_no_hbm_traffic():
    m = module(
        instruction(1, "parameter", array([512], F32, space=1))
        + instruction(99, "negate", array([512]), "operand_ids: 1")
    )
    assert estimate(m, TARGET).bytes == 2 * 512


def relaid(opcode, shape, others="", more=""):
    return module(
        instruction(1, "parameter", array([1024, 4096], F32))
        + instruction(99, opcode, shape, f"operand_ids: 1 {more}"),
        others,
    )


COLUMNS = array([1024, 4096], F32).replace("minor_to_major: 1 minor_to_major: 0", "minor_to_major: 0 minor_to_major: 1")


def moving(*parts):
    """A computation of a parameter and instructions, each of the one before."""
    chain = "".join(
        instruction(20 + i, opcode, shape, f"operand_ids: {19 + i}") for i, (opcode, shape) in enumerate(parts, 1)
    )
    return f"computations {{ id: 2 root_id: {20 + len(parts)} {instruction(20, 'parameter', array([1024, 4096], F32))}{chain} }}"


@pytest.mark.parametrize(
    ("copies", "made"),
    [
        (True, relaid("copy", COLUMNS)),
        (True, relaid("transpose", array([4096, 1024], F32))),
        (True, relaid("reshape", array([1 << 22], F32))),
        (True, relaid("fusion", COLUMNS, moving(("copy", COLUMNS)), "called_computation_ids: 2")),
        (False, relaid("copy", array([1024, 4096], F32))),
        (False, relaid("copy", array([1024, 4096], F32, space=1))),
        (False, relaid("copy-start", array([1024, 4096], F32, space=1))),
        (False, relaid("negate", array([1024, 4096], F32))),
        (
            False,
            relaid("fusion", COLUMNS, moving(("negate", COLUMNS), ("copy", COLUMNS)), "called_computation_ids: 2"),
        ),
    ],
)
def test_what_only_puts_elements_in_another_order_is_a_layout_copy(copies, made):
    assert layout.only_changes_layout(made, made.instructions[99]) == copies
    assert sum(s.relaid for s in estimate(made, TARGET).steps) == copies * 4 * 1024 * 4096


def test_a_layout_copy_has_the_line_of_the_op_it_was_made_for():
    place = (
        'stack_frames { file_names: "net.py" function_names: "forward" '
        "file_locations { file_name_id: 1 function_name_id: 1 line: 7 } stack_frames { file_location_id: 1 } }"
    )
    served = 'metadata { op_name: "net.0/aten.mm" stack_frame_id: 1 }'
    m = module(
        instruction(1, "parameter", array([64, 64]))
        + instruction(2, "copy", array([64, 64]), "operand_ids: 1")
        + instruction(3, "bitcast", array([64, 64]), "operand_ids: 2")
        + instruction(99, "negate", array([64, 64]), f"operand_ids: 3 {served}"),
        place,
    )
    line = layout.line(m, m.instructions[2])
    assert (line.op, line.where) == ("net.0/copy for aten.mm", "net.py:7")


def test_tiles_pad():
    shape = module(instruction(99, "iota", array([3, 100], F32, tiled=True))).instructions[99].shape
    assert plain_bytes(shape) == 4 * 300
    assert shape_bytes(shape) == 4 * 8 * 128


def loop(bound, other_end=False):
    pair = f"shape {{ element_type: {TUPLE} tuple_shapes {{ element_type: {S32} }} tuple_shapes {{ element_type: {F32} dimensions: 4096 layout {{ minor_to_major: 0 }} }} }}"
    scalar = array([], S32)

    def constant(id_, value):
        return instruction(id_, "constant", scalar, f"literal {{ s32s: {value} }}")

    body = (
        "computations { id: 2 root_id: 24 "
        + instruction(20, "parameter", pair)
        + instruction(21, "get-tuple-element", scalar, "operand_ids: 20")
        + constant(22, 1)
        + instruction(23, "add", scalar, "operand_ids: 21 operand_ids: 22")
        + instruction(25, "get-tuple-element", array([4096], F32), "operand_ids: 20 tuple_index: 1")
        + instruction(26, "negate", array([4096], F32), "operand_ids: 25")
        + instruction(24, "tuple", pair, "operand_ids: 23 operand_ids: 26")
        + "}"
    )
    end = constant(32, bound) if bound is not None else instruction(32, "get-tuple-element", scalar, "operand_ids: 30")
    condition = (
        f"computations {{ id: 3 root_id: {34 if other_end else 33} "
        + instruction(30, "parameter", pair)
        + instruction(31, "get-tuple-element", scalar, "operand_ids: 30")
        + end
        + instruction(33, "compare", array([], 1), "operand_ids: 31 operand_ids: 32")
        + (instruction(34, "and", array([], 1), "operand_ids: 33 operand_ids: 33") if other_end else "")
        + "}"
    )
    entry = (
        constant(1, 0)
        + instruction(2, "parameter", array([4096], F32))
        + instruction(3, "tuple", pair, "operand_ids: 1 operand_ids: 2")
        + instruction(99, "while", pair, "operand_ids: 3 called_computation_ids: 2 called_computation_ids: 3")
    )
    return module(entry, body + condition)


def test_loops_count_as_often_as_they_run():
    once, many = estimate(loop(1), TARGET), estimate(loop(36), TARGET)
    assert many.bytes == 36 * once.bytes
    assert many.unknown_loops == 0


def test_a_loop_that_ends_by_data_counts_once_and_is_said():
    assert estimate(loop(None), TARGET).unknown_loops == 1


def test_a_loop_that_may_end_before_its_count_counts_once():
    found = estimate(loop(10_000, other_end=True), TARGET)
    assert found.unknown_loops == 1
    assert found.bytes == estimate(loop(1), TARGET).bytes


def window(size, stride=1, low=0, high=0, base=1, dilation=1):
    return (
        f"dimensions {{ size: {size} stride: {stride} padding_low: {low} padding_high: {high} "
        f"base_dilation: {base} window_dilation: {dilation} }}"
    )


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "low", "high", "base"),
    [(14, 3, 1, 1, 1, 1), (14, 3, 2, 1, 1, 1), (7, 4, 1, 2, 2, 2), (12, 12, 11, 0, 0, 12), (9, 5, 3, 4, 0, 2)],
)
def test_convolutions_count_only_products_with_elements(size, kernel, stride, low, high, base):
    spread = (size - 1) * base + 1
    out = (spread + low + high - kernel) // stride + 1
    dims = (
        "convolution_dimensions { input_feature: 1 input_spatial: 2 kernel_input_feature: 1 kernel_spatial: 2 "
        "output_feature: 1 output_spatial: 2 }"
    )
    m = module(
        instruction(1, "parameter", array([2, 3, size]))
        + instruction(2, "parameter", array([5, 3, kernel]), "parameter_number: 1")
        + instruction(
            99,
            "convolution",
            array([2, 5, out]),
            f"operand_ids: 1 operand_ids: 2 {dims} window {{ {window(kernel, stride, low, high, base)} }} "
            "feature_group_count: 1 batch_group_count: 1",
        )
    )
    at = [o * stride + k - low for o in range(out) for k in range(kernel)]
    valid = sum(0 <= p < spread and p % base == 0 for p in at)
    assert m.matmul_flops(m.instructions[99])[0] == 2 * valid * 2 * 5 * 3


def nested_loops(rows):
    """for i in range(rows): for j in range(i + 1): negate 4096 numbers."""
    scalar, row = array([], S32), array([4096], F32)
    parts = " ".join(f"tuple_shapes {{ {s} }}" for s in (f"element_type: {S32}", f"element_type: {S32}"))
    numbers = f"tuple_shapes {{ element_type: {F32} dimensions: 4096 layout {{ minor_to_major: 0 }} }}"
    state = f"shape {{ element_type: {TUPLE} {parts} {numbers} }}"

    def constant(id_, value):
        return instruction(id_, "constant", scalar, f"literal {{ s32s: {value} }}")

    def element(id_, of, index, shape=scalar):
        return instruction(id_, "get-tuple-element", shape, f"operand_ids: {of} tuple_index: {index}")

    def ids(*operands):
        return " ".join(f"operand_ids: {o}" for o in operands)

    def condition(id_, base):
        return (
            f"computations {{ id: {id_} root_id: {base + 3} "
            + instruction(base, "parameter", state)
            + element(base + 1, base, 0)
            + element(base + 2, base, 1)
            + instruction(base + 3, "compare", array([], 1), f'{ids(base + 1, base + 2)} comparison_direction: "LT"')
            + "}"
        )

    inner = (
        "computations { id: 2 root_id: 26 "
        + instruction(20, "parameter", state)
        + element(21, 20, 0)
        + element(22, 20, 1)
        + element(23, 20, 2, row)
        + constant(24, 1)
        + instruction(25, "add", scalar, ids(21, 24))
        + instruction(27, "negate", row, ids(23))
        + instruction(26, "tuple", state, ids(25, 22, 27))
        + "}"
    )
    outer = (
        "computations { id: 4 root_id: 48 "
        + instruction(40, "parameter", state)
        + element(41, 40, 0)
        + element(42, 40, 1)
        + element(43, 40, 2, row)
        + constant(44, 1)
        + constant(49, 0)
        + instruction(45, "add", scalar, ids(41, 44))
        + instruction(46, "tuple", state, ids(49, 45, 43))
        + instruction(47, "while", state, f"{ids(46)} called_computation_ids: 2 called_computation_ids: 3")
        + element(50, 47, 2, row)
        + instruction(48, "tuple", state, ids(45, 42, 50))
        + "}"
    )
    entry = (
        constant(1, 0)
        + constant(2, rows)
        + instruction(3, "parameter", row)
        + instruction(4, "tuple", state, ids(1, 2, 3))
        + instruction(99, "while", state, f"{ids(4)} called_computation_ids: 4 called_computation_ids: 5")
    )
    return module(entry, inner + condition(3, 30) + outer + condition(5, 50 + 10))


def test_a_loop_that_ends_by_an_enclosing_loops_count_runs_that_often():
    e = estimate(nested_loops(8), TARGET)
    assert e.bytes == (8 * 9 / 2) * 2 * 4 * 4096
    assert e.unknown_loops == 0


def test_single_numbers_take_no_time():
    scalar = array([], S32)
    m = module(instruction(1, "parameter", scalar) + instruction(99, "negate", scalar, "operand_ids: 1"))
    assert estimate(m, TARGET).expected == 0


def test_a_slice_in_a_fusion_within_a_fusion_reads_the_slice():
    whole, part = array([64, 1024], F32), array([1, 1024], F32)
    inner = (
        "computations { id: 2 root_id: 22 "
        + instruction(20, "parameter", whole)
        + instruction(21, "parameter", array([], S32), "parameter_number: 1")
        + instruction(22, "dynamic-slice", part, "operand_ids: 20 operand_ids: 21")
        + "}"
    )
    outer = (
        "computations { id: 3 root_id: 33 "
        + instruction(30, "parameter", whole)
        + instruction(31, "parameter", array([], S32), "parameter_number: 1")
        + instruction(32, "fusion", part, "operand_ids: 30 operand_ids: 31 called_computation_ids: 2")
        + instruction(33, "negate", part, "operand_ids: 32")
        + "}"
    )
    m = module(
        instruction(1, "parameter", whole)
        + instruction(2, "parameter", array([], S32), "parameter_number: 1")
        + instruction(99, "fusion", part, "operand_ids: 1 operand_ids: 2 called_computation_ids: 3"),
        inner + outer,
    )
    # The slice is read and written; the index is four bytes.
    assert estimate(m, TARGET).bytes == 2 * 4 * 1024 + 4


def test_a_kernel_takes_what_its_author_says_of_it():
    said = (
        '{\\"custom_call_config\\": {\\"cost_estimate\\": {\\"flops\\": \\"68719476736\\", \\"transcendentals\\": 0}}}'
    )
    call = f'operand_ids: 1 custom_call_target: "tpu_custom_call" backend_config: "{said}"'
    m = module(instruction(1, "parameter", array([8, 128])) + instruction(99, "custom-call", array([8, 128]), call))
    e = estimate(m, TARGET)
    assert e.flops == 2**36
    assert e.expected == pytest.approx(2**36 / CHIP.flops + LAUNCH)
    assert not e.uncosted_calls


def test_a_kernels_configuration_may_stand_in_the_module():
    said = '{\\"custom_call_config\\": {\\"cost_estimate\\": {\\"flops\\": \\"1024\\"}}}'
    call = 'operand_ids: 1 custom_call_target: "tpu_custom_call" shared_config { index: 1 }'
    entry = instruction(1, "parameter", array([8, 128])) + instruction(99, "custom-call", array([8, 128]), call)
    text = f'entry_id: 1 shared_configs: "{{}}" shared_configs: "{said}" computations {{ id: 1 root_id: 99 {entry} }}'
    e = estimate(Module(text_format.Parse(text, protos.messages().Module())), TARGET)
    assert e.flops == 1024


@pytest.mark.parametrize("literal", ['s8s: "\\001\\377"', "s32s: 1 s32s: -1"])
def test_numbers_of_a_constant_are_known_through_copies(literal):
    m = module(
        instruction(1, "constant", array([2], S32), f"literal {{ {literal} }}")
        + instruction(2, "copy-start", array([2], S32), "operand_ids: 1")
        + instruction(99, "copy-done", array([2], S32), "operand_ids: 2")
    )
    assert m.numbers(m.instructions[99]) == (1, -1)


def test_a_gather_brings_in_the_other_devices_parts_over_the_links_of_a_corner():
    m = module(
        instruction(1, "parameter", array([64, 1024]))
        + instruction(99, "all-gather", array([1024, 1024]), "operand_ids: 1 dimensions: 0")
    )
    e = estimate(m, parse("v6e:4x4"))
    assert e.link_bytes == 15 * 64 * 1024 * 2
    # Two of a chip's four links of 100 GB/s.
    assert e.expected == pytest.approx(e.link_bytes / 200e9 + LAUNCH)
    assert estimate(m, parse("v6e:16x16")).expected == pytest.approx(255 * 64 * 1024 * 2 / 400e9 + LAUNCH)


def test_a_sum_of_which_each_device_takes_a_slice_is_scattered():
    whole, part = array([1024, 1024], F32), array([64, 1024], F32)
    fused = (
        "computations { id: 2 root_id: 23 "
        + instruction(20, "parameter", whole)
        + instruction(21, "all-reduce", whole, "operand_ids: 20")
        + instruction(22, "partition-id", array([], S32))
        + instruction(23, "dynamic-slice", part, "operand_ids: 21 operand_ids: 22")
        + "}"
    )
    m = module(
        instruction(1, "parameter", whole)
        + instruction(99, "fusion", part, "operand_ids: 1 called_computation_ids: 2"),
        fused,
    )
    assert estimate(m, parse("v6e:4x4")).link_bytes == 15 / 16 * 4 * 1024 * 1024


def test_a_collective_hides_behind_what_runs_before_its_end():
    pair = f"shape {{ element_type: {TUPLE} tuple_shapes {{ element_type: {F32} }} tuple_shapes {{ element_type: {F32} }} }}"

    def exchange(between):
        moved = array([1 << 20], F32)
        return module(
            instruction(1, "parameter", moved)
            + instruction(2, "parameter", array([1 << 28], F32), "parameter_number: 1")
            + instruction(3, "collective-permute-start", pair, "operand_ids: 1")
            + between
            + instruction(99, "collective-permute-done", moved, "operand_ids: 3")
        )

    work = instruction(4, "negate", array([1 << 28], F32), "operand_ids: 2")
    alone, beside = (estimate(exchange(between), parse("v6e:2x2")) for between in ("", work))
    assert alone.seconds_by_bound["ICI"] == pytest.approx((1 << 22) / 200e9 + LAUNCH)
    assert beside.seconds_by_bound["ICI"] == 0
    assert alone.link_bytes == beside.link_bytes == 1 << 22


def test_a_collective_of_sparse_cores_counts_from_where_it_gets_its_operands():
    """A start without operands tells SparseCores what to run, in a computation that a custom call has."""
    moved, whole = array([1 << 20], F32), array([1 << 22], F32)
    others = (
        f"computations {{ id: 2 root_id: 21 {instruction(20, 'parameter', moved)}"
        f"{instruction(21, 'custom-call', whole, 'operand_ids: 20 called_computation_ids: 3')} }}"
        f"computations {{ id: 3 root_id: 31 {instruction(30, 'parameter', moved)}"
        f"{instruction(31, 'all-gather', whole, 'operand_ids: 30')} }}"
    )
    work = instruction(5, "negate", array([1 << 28], F32), "operand_ids: 2")
    update = instruction(4, "async-update", whole, "operand_ids: 3 operand_ids: 1")

    def gather(*between):
        return module(
            instruction(1, "parameter", moved)
            + instruction(2, "parameter", array([1 << 28], F32), "parameter_number: 1")
            + instruction(3, "async-start", whole, "called_computation_ids: 2")
            + "".join(between)
            + instruction(99, "async-done", whole, "operand_ids: 4"),
            others,
        )

    before, after = (estimate(gather(*between), parse("v6e:2x2")) for between in ((work, update), (update, work)))
    assert before.link_bytes == after.link_bytes == 3 * (1 << 22)
    assert before.seconds_by_bound["ICI"] == pytest.approx(3 * (1 << 22) / 200e9 + LAUNCH)
    assert after.seconds_by_bound["ICI"] == 0
