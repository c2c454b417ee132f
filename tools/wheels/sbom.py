"""The list of parts of a wheel, in CycloneDX's JSON: no address, no date, no random number."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from tools.wheels.parts import Part


def list_of_parts(version: str, contained: Sequence[Part], required: Sequence[Part]) -> bytes:
    """The document, the same bytes for the same arguments.

    Args:
        version: of nnburst.
        contained: what is compiled in.
        required: what an installation brings along.
    """
    bom = Bom()
    root = Component(
        type=ComponentType.LIBRARY,
        name="nnburst",
        version=version,
        bom_ref="nnburst",
        purl=PackageURL("pypi", None, "nnburst", version),
        licenses=[LicenseExpression("Apache-2.0")],
    )
    bom.metadata.component = root
    parts = [_component(part, "contained") for part in contained]
    parts += [_component(part, "required") for part in required]
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    # What differs each time, and the address of a schema that readers have by `specVersion`.
    for name in ("serialNumber", "$schema"):
        document.pop(name, None)
    document["metadata"].pop("timestamp", None)
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def _component(part: Part, how: str) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        name=part.name,
        version=part.version,
        bom_ref=f"{how}:{part.name}",
        purl=PackageURL("pypi", None, part.name, part.version),
        licenses=[LicenseExpression(part.license)] if part.license else [],
        properties=[Property(name=f"nnburst:{how}", value=part.why)],
    )
