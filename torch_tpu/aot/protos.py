"""The parts of XLA's protocol buffers that a check reads: an optimized program and its buffers.

Only the fields that are used are declared (numbers from xla/service/hlo.proto and xla_data.proto);
others are skipped. Needs the packages of the extra ``check``.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

from torch_tpu.aot.errors import CheckError

# message -> "name:number:type"; a trailing * is repeated, % is a map from int64.
_SCHEMA = {
    "Partial": "program:1:bytes program_format:2:string producer_phase:3:string program_name:6:string",
    "Tile": "dimensions:1:int64*",
    "Layout": "minor_to_major:1:int64* tiles:6:Tile* memory_space:8:int64",
    "Shape": "element_type:2:int32 dimensions:3:int64* tuple_shapes:4:Shape* layout:5:Layout",
    "Literal": "preds:2:bool* u8s:3:bytes s32s:4:int32* s64s:5:int64* u32s:6:uint32* u64s:7:uint64* s8s:15:bytes s16s:17:bytes",
    "Metadata": "op_name:2:string source_file:3:string source_line:4:int32 stack_frame_id:15:int32",
    "WindowDimension": "size:1:int64 stride:2:int64 padding_low:3:int64 padding_high:4:int64 "
    "window_dilation:5:int64 base_dilation:6:int64",
    "Window": "dimensions:1:WindowDimension*",
    "ConvolutionDimensions": "kernel_input_feature:3:int64 kernel_output_feature:4:int64 kernel_spatial:6:int64* "
    "input_batch:7:int64 input_feature:8:int64 output_batch:9:int64 output_feature:10:int64 input_spatial:11:int64* "
    "output_spatial:12:int64*",
    "DotDimensions": "lhs_contracting:1:int64* rhs_contracting:2:int64* lhs_batch:3:int64* rhs_batch:4:int64*",
    "Precision": "operand_precision:1:int32*",
    "ReplicaGroup": "replica_ids:1:int64*",
    "IotaGroups": "count:1:int64 size:2:int64",
    "DeviceList": "replica_groups:1:ReplicaGroup* iota:2:IotaGroups",
    "SharedConfig": "index:2:int64",
    "Instruction": "name:1:string opcode:2:string shape:3:Shape metadata:7:Metadata literal:8:Literal "
    "parameter_number:9:int64 tuple_index:13:int64 dimensions:14:int64* window:15:Window "
    "convolution_dimensions:16:ConvolutionDimensions custom_call_target:28:string dot_dimensions:30:DotDimensions "
    "id:35:int64 operand_ids:36:int64* called_computation_ids:38:int64* backend_config:43:bytes "
    "replica_groups:49:ReplicaGroup* device_list:87:DeviceList feature_group_count:50:int64 precision:51:Precision "
    "batch_group_count:58:int64 comparison_direction:63:string shared_config:99:SharedConfig",
    "Computation": "name:1:string instructions:2:Instruction* id:5:int64 root_id:6:int64",
    "Sequence": "instruction_ids:1:int64*",
    "Schedule": "sequences:1:Sequence%",
    "FileLocation": "file_name_id:1:int32 function_name_id:2:int32 line:3:int32",
    "StackFrame": "file_location_id:1:int32 parent_frame_id:2:int32",
    "StackFrames": "file_names:1:string* function_names:2:string* file_locations:3:FileLocation* stack_frames:4:StackFrame*",
    "Module": "name:1:string entry_name:2:string computations:3:Computation* entry_id:6:int64 schedule:7:Schedule "
    "stack_frames:17:StackFrames shared_configs:22:bytes*",
    "ModuleWithConfig": "hlo_module:1:Module",
    "Assigned": "logical_buffer_id:1:int64 offset:2:int64 size:3:int64",
    "Allocation": "index:1:int64 size:2:int64 is_thread_local:3:bool is_entry_parameter:5:bool parameter_number:6:int64 "
    "maybe_live_out:7:bool color:8:int64 assigned:9:Assigned* is_tuple:11:bool is_constant:12:bool",
    "Location": "instruction_name:2:string instruction_id:4:int64",
    "LogicalBuffer": "id:1:int64 size:2:int64 defined_at:3:Location color:4:int64",
    "HeapEvent": "kind:1:int32 buffer_id:2:int64 instruction_name:4:string shared_with:5:int64",
    "HeapTrace": "events:1:HeapEvent* allocation_index:3:int64",
    "BufferAssignment": "logical_buffers:1:LogicalBuffer* allocations:3:Allocation* heap_traces:4:HeapTrace*",
}


@cache
def messages() -> Any:
    """The message classes, by name. Raises CheckError if the protobuf package is missing."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise CheckError(
            "The package protobuf, which reads the compiler's answers, is not installed.",
            "Install it: pip install 'torch_tpu[check]'",
        ) from None

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="torch_tpu/check.proto", package="torch_tpu.check", syntax="proto3")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            title, number, kind = text.split(":")
            mark = kind[-1] if kind[-1] in "*%" else ""
            kind = kind.rstrip("*%")
            added = message.field.add(name=title, number=int(number))
            added.label = field.LABEL_REPEATED if mark else field.LABEL_OPTIONAL
            if mark == "%":
                entry = message.nested_type.add(name=f"{title.capitalize()}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
                entry.field.add(
                    name="value",
                    number=2,
                    type=field.TYPE_MESSAGE,
                    label=field.LABEL_OPTIONAL,
                    type_name=f".torch_tpu.check.{kind}",
                )
                added.type, added.type_name = field.TYPE_MESSAGE, f".torch_tpu.check.{name}.{entry.name}"
            elif kind in _SCHEMA:
                added.type, added.type_name = field.TYPE_MESSAGE, f".torch_tpu.check.{kind}"
            else:
                added.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return SimpleNamespace(
        **{name: message_factory.GetMessageClass(find(f"torch_tpu.check.{name}")) for name in _SCHEMA}
    )


def _plain(data: bytes) -> bytes:
    if not data.startswith(b"\x28\xb5\x2f\xfd"):
        return data
    try:
        import zstandard
    except ImportError:
        raise CheckError(
            "The package zstandard, which unpacks the compiler's answers, is not installed.",
            "Install it: pip install 'torch_tpu[check]'",
        ) from None
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def partial_programs(serialized: list[bytes]) -> dict[str, bytes]:
    """The unpacked payloads of a phase's results, by name."""
    programs = (messages().Partial.FromString(data) for data in serialized)
    return {p.program_name or p.program_format: _plain(p.program) for p in programs}


def hlo_module(data: bytes, with_config: bool = False) -> Any:
    """A Module from a serialized HloModuleProto, or HloModuleProtoWithConfig."""
    if with_config:
        return messages().ModuleWithConfig.FromString(data).hlo_module
    return messages().Module.FromString(data)


def buffer_assignment(data: bytes) -> Any:
    return messages().BufferAssignment.FromString(data)
