"""Reads one Pascal VOC annotation file. Built on expat, so that every complaint carries the file and the line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat


@dataclass
class VocObject:
    """One annotated object; corners as written in the file (1-based, inclusive)."""

    name: str
    x_min: float
    y_min: float
    x_max: float
    y_max: float
    difficult: bool


@dataclass
class VocAnnotation:
    """Image size (0 where the file has none) and objects."""

    width: int
    height: int
    objects: list[VocObject] = field(default_factory=list)


@dataclass
class _Element:
    tag: str
    line: int
    text: str = ""
    children: list[_Element] = field(default_factory=list)

    def child(self, tag: str) -> _Element | None:
        return next((c for c in self.children if c.tag == tag), None)


def read_voc(path: Path) -> VocAnnotation:
    """The annotation in `path`. ValueError `file:line: what` where it is not one."""
    root = _parse(path)
    if root.tag != "annotation":
        raise ValueError(f"{path}:{root.line}: expected <annotation> as the root, found <{root.tag}>")
    size = root.child("size")
    width = int(_number(path, size, "width")) if size else 0
    height = int(_number(path, size, "height")) if size else 0
    annotation = VocAnnotation(width, height) if width > 0 and height > 0 else VocAnnotation(0, 0)
    for element in root.children:
        if element.tag == "object":
            annotation.objects.append(_read_object(path, element))
    return annotation


def _read_object(path: Path, element: _Element) -> VocObject:
    name = element.child("name")
    if name is None or not name.text.strip():
        raise ValueError(f"{path}:{element.line}: <object> has no <name>")
    box = element.child("bndbox")
    if box is None:
        raise ValueError(f"{path}:{element.line}: <object> `{name.text.strip()}` has no <bndbox>")
    x_min, y_min, x_max, y_max = (_number(path, box, tag) for tag in ("xmin", "ymin", "xmax", "ymax"))
    if x_max < x_min or y_max < y_min:
        raise ValueError(f"{path}:{box.line}: <bndbox> ends before it begins: {x_min:g} {y_min:g} {x_max:g} {y_max:g}")
    difficult = element.child("difficult")
    return VocObject(
        name.text.strip(), x_min, y_min, x_max, y_max, difficult is not None and difficult.text.strip() == "1"
    )


def _number(path: Path, parent: _Element, tag: str) -> float:
    element = parent.child(tag)
    if element is None:
        raise ValueError(f"{path}:{parent.line}: <{parent.tag}> has no <{tag}>")
    try:
        value = float(element.text)
    except ValueError:
        raise ValueError(f"{path}:{element.line}: <{tag}> must be a number, found `{element.text.strip()}`") from None
    if not -1e6 < value < 1e6:
        raise ValueError(f"{path}:{element.line}: <{tag}> is out of range: {value:g}")
    return value


def _parse(path: Path) -> _Element:
    parser = expat.ParserCreate()
    stack: list[_Element] = [_Element("", 0)]

    def start(tag: str, _attributes: dict[str, str]) -> None:
        element = _Element(tag, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def end(_tag: str) -> None:
        stack.pop()

    def text(data: str) -> None:
        stack[-1].text += data

    def refuse_entity(*_: object) -> None:
        raise ValueError(f"{path}:{parser.CurrentLineNumber}: entity declarations are not accepted")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = refuse_entity
    try:
        parser.Parse(path.read_bytes(), True)
    except expat.ExpatError as error:
        raise ValueError(f"{path}:{error.lineno}: not valid XML: {expat.errors.messages[error.code]}") from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    return stack[0].children[0]
