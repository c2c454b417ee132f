"""Converts KServe v2's JSON requests and answers, with tensors in JSON or, by the binary extension, after it.

They are converted to and from gRPC's messages, so that both protocols have the same meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import GenericAlias
from typing import Any, Final

import msgspec
import numpy as np
from tritonclient.grpc import service_pb2

from nnburst.hal.errors import InvalidArgument
from nnburst.serving.tensors import DATA_TYPES, Array, Message

Word = bool | int | float | str
#: Returns whether an output is to be sent as bytes.
IsBinary = Callable[[str], bool]
_BFLOAT16: Final = "BF16"
#: Greatest depth of nested arrays: numpy's greatest rank.
_DEEPEST: Final = 64


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Word] = {}
    data: msgspec.Raw = msgspec.Raw()


class _Output(msgspec.Struct):
    name: str
    parameters: dict[str, Word] = {}


class _Request(msgspec.Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: dict[str, Word] = {}
    outputs: list[_Output] = []


def _nested(kind: type) -> GenericAlias:
    """The type of lists of values of one type, flat or nested as deep as numpy permits."""
    found = GenericAlias(list, kind)
    for _ in range(_DEEPEST - 1):
        found = GenericAlias(list, kind | found)
    return found


_decode: Final = msgspec.json.Decoder(_Request).decode
#: Decoders of `data` by the kind of its dtype. Without them one long string among many short ones would take
#: that length for each, when they become an array.
_decode_data: Final[dict[str, Callable[[msgspec.Raw], list[Any]]]] = {
    "b": msgspec.json.Decoder(_nested(bool)).decode,
    "i": msgspec.json.Decoder(_nested(int)).decode,
    "u": msgspec.json.Decoder(_nested(int)).decode,
    "f": msgspec.json.Decoder(_nested(float)).decode,
}
_encode: Final = msgspec.json.Encoder().encode


def read_request(body: bytes, head_size: int, model: str, version: str) -> tuple[Message, IsBinary]:
    """Read a ModelInferRequest, and which outputs are to be sent as bytes.

    Args:
        body: JSON, followed by the tensors with `binary_data_size`, in the order of inputs.
        head_size: bytes of the JSON.
        model: name of the model, from the path.
        version: version of the model, from the path; empty for any.

    Raises:
        InvalidArgument: the message names the field and the rule.
    """
    if not 0 <= head_size <= len(body):
        raise InvalidArgument(
            f"Inference-Header-Content-Length: {head_size}, the body has {len(body)} bytes"
        )
    try:
        found = _decode(body[:head_size])
        return _message(found, memoryview(body)[head_size:], model, version), _binary(found)
    except InvalidArgument:
        raise
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"the request is not what the protocol has: {error}") from None
    except (ValueError, OverflowError, TypeError) as error:
        # Protobuf has no room for a number of the request.
        raise InvalidArgument(f"the request has a value that does not fit: {error}") from None


def _message(found: _Request, rest: memoryview, model: str, version: str) -> Message:
    message = service_pb2.ModelInferRequest(model_name=model, model_version=version, id=found.id)
    _set_words(message, found.parameters, ("binary_data_output",))
    at = 0
    for given in found.inputs:
        tensor = message.inputs.add(name=given.name, datatype=given.datatype, shape=given.shape)
        _set_words(tensor, given.parameters, ("binary_data_size",))
        size = given.parameters.get("binary_data_size")
        if size is not None:
            if (
                isinstance(size, bool)
                or not isinstance(size, int)
                or not 0 <= size <= len(rest) - at
            ):
                raise InvalidArgument(
                    f"input {given.name!r}: binary_data_size: {size}, {len(rest) - at} bytes are left"
                )
            if _has_data(given):
                raise InvalidArgument(f"input {given.name!r} has data and binary_data_size")
            message.raw_input_contents.append(bytes(rest[at : at + size]))
            at += size
        elif "shared_memory_region" not in given.parameters:
            message.raw_input_contents.append(_bytes(given))
    if at != len(rest):
        raise InvalidArgument(f"{len(rest) - at} bytes behind the JSON belong to no input")
    for wanted in found.outputs:
        output = message.outputs.add(name=wanted.name)
        _set_words(output, wanted.parameters, ("binary_data",))
    return message


def _binary(found: _Request) -> IsBinary:
    usual = _truth(found.parameters, "binary_data_output", usual=False)
    chosen = {
        each.name: _truth(each.parameters, "binary_data", usual=usual) for each in found.outputs
    }
    return lambda name: chosen.get(name, usual)


def _truth(words: dict[str, Word], name: str, *, usual: bool) -> bool:
    word = words.get(name, usual)
    if not isinstance(word, bool):
        raise InvalidArgument(f"{name}: {word!r}, expected a boolean")
    return word


def _set_words(message: Message, words: dict[str, Word], ours: Iterable[str]) -> None:
    for name, word in words.items():
        if name in ours:
            continue
        parameter = message.parameters[name]
        if isinstance(word, bool):
            parameter.bool_param = word
        elif isinstance(word, int):
            if word < 1 << 63:
                parameter.int64_param = word
            else:
                parameter.uint64_param = word
        elif isinstance(word, float):
            parameter.double_param = word
        else:
            parameter.string_param = word


def _has_data(given: _Input) -> bool:
    return bytes(given.data) not in (b"", b"null")


def _bytes(given: _Input) -> bytes:
    """Convert JSON's numbers, flat or nested by shape, to the raw bytes of a tensor."""
    kind = DATA_TYPES.get(given.datatype)
    if kind is None:
        raise InvalidArgument(
            f"input {given.name!r} has datatype {given.datatype!r}, expected one of {list(DATA_TYPES)}"
        )
    if not _has_data(given):
        raise InvalidArgument(f"input {given.name!r}: data is missing")
    try:
        values = _decode_data[kind.kind](given.data)
        with np.errstate(over="ignore"):  # too large real numbers become infinite
            array = np.array(values, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidArgument(
            f"input {given.name!r} has values that are not of {given.datatype}: {error}"
        ) from None
    except ValueError:
        raise InvalidArgument(f"input {given.name!r}: data is not as wide everywhere") from None
    if array.ndim > 1 and list(array.shape) != given.shape:
        raise InvalidArgument(
            f"input {given.name!r}: data has shape {list(array.shape)}, expected {given.shape}"
        )
    return _to_bfloat16(array) if given.datatype == _BFLOAT16 else array.tobytes()


def _to_bfloat16(array: Array) -> bytes:
    bits = np.ascontiguousarray(array, "<f4").view("<u4").astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # round to nearest, ties to even
    quiet = np.where(np.isnan(array), np.uint64(0x7FC0), rounded)
    return quiet.astype("<u2").tobytes()


def write_response(response: Message, is_binary: IsBinary) -> tuple[bytes, bytes]:
    """Make the JSON of a ModelInferResponse, and the bytes after it; empty if all outputs are in the JSON."""
    raw = iter(response.raw_output_contents)
    outputs, behind = [], []
    for given in response.outputs:
        output: dict[str, Any] = {
            "name": given.name,
            "datatype": given.datatype,
            "shape": list(given.shape),
        }
        if given.parameters:  # the output is in shared memory
            output["parameters"] = _words(given)
        elif is_binary(given.name):
            behind.append(next(raw))
            output["parameters"] = {"binary_data_size": len(behind[-1])}
        else:
            output["data"] = _numbers(next(raw), given.datatype)
        outputs.append(output)
    head: dict[str, Any] = {
        "model_name": response.model_name,
        "model_version": response.model_version,
        "outputs": outputs,
    }
    if response.id:
        head["id"] = response.id
    return _encode(head), b"".join(behind)


def _numbers(raw: bytes, datatype: str) -> list[Any]:
    """Convert an output to numbers; infinities and NaN, which JSON lacks, become null."""
    if datatype == _BFLOAT16:
        wide = np.frombuffer(raw, "<u2").astype("<u4") << 16
        return list(wide.view("<f4").tolist())
    return list(np.frombuffer(raw, DATA_TYPES[datatype]).tolist())


def _words(message: Message) -> dict[str, Word]:
    return {
        name: getattr(word, word.WhichOneof("parameter_choice"))
        for name, word in message.parameters.items()
    }


def as_json(message: Message) -> bytes:
    """Convert a message of the protocol to JSON with the names of its fields."""
    return _encode(_plain(message))


def error_json(text: str) -> bytes:
    """Make the body of the answer to a failed request."""
    return _encode({"error": text})


def _plain(message: Message) -> dict[str, Any]:
    return {
        field.name: _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value(field: Any, value: Any) -> Any:  # noqa: ANN401 - of protobuf
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name["value"]
        return {str(key): _value(entry, value[key]) for key in value}
    if field.message_type is not None:
        return _plain(value) if field.has_presence else [_plain(each) for each in value]
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return names[value].name if isinstance(value, int) else [names[each].name for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return list(value)
