"""Writes ONNX files without the parts that only a debugger reads: adult's file has 73 KB instead of 195 KB."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a model with short names for inner values, without stack traces, shapes of inner values, names of nodes and attributes that
    have their default."""
    _remove_defaults(model)
    if not _has_inner_graphs(model):
        _shorten(model)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _shorten(model: onnx.ModelProto) -> None:
    graph = model.graph
    outer_names, short = {value.name for value in (*graph.input, *graph.output)}, dict[str, str]()

    def shorten(names: Iterable[str]) -> list[str]:
        return [name if name in outer_names or not name else short.setdefault(name, f"_{len(short):x}") for name in names]

    for node in graph.node:
        node.ClearField("name")
        inputs, outputs = shorten(node.input), shorten(node.output)
        del node.input[:], node.output[:]
        node.input.extend(inputs)
        node.output.extend(outputs)
    for constant in graph.initializer:
        (constant.name,) = shorten([constant.name])
    for part in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        _remove_remarks(part)
    graph.ClearField("value_info")
    graph.ClearField("quantization_annotation")


def _remove_defaults(model: onnx.ModelProto) -> None:
    versions = {imported.domain: imported.version for imported in model.opset_import}
    for node in model.graph.node:
        if onnx.defs.has(node.op_type, node.domain):
            schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain).attributes
            for attribute in list(node.attribute):
                if attribute.name in schema and attribute == schema[attribute.name].default_value:
                    node.attribute.remove(attribute)


def _has_inner_graphs(model: onnx.ModelProto) -> bool:
    """Whether a node has a graph of its own, such as a loop: its names cannot be changed apart from the outer ones."""
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    return bool(model.functions) or any(attribute.HasField("g") or attribute.graphs for attribute in attributes)


def _remove_remarks(part: Any) -> None:
    part.ClearField("doc_string")
    part.ClearField("metadata_props")
