"""Synthetic scenes of machine parts with exact boxes, upright and oriented: `generate`, `write_folder`, `CLASS_NAMES`. numpy and OpenCV only."""

if not __name__.startswith("npuforge."):
    raise ImportError(f"import this package as npuforge.scripts.scenes, not as {__name__}")

from npuforge.scripts.scenes.parts import CLASS_NAMES
from npuforge.scripts.scenes.scene import Annotation, Scene, generate, render_scene
from npuforge.scripts.scenes.write import to_coco, write_folder

__all__ = ["CLASS_NAMES", "Annotation", "Scene", "generate", "render_scene", "to_coco", "write_folder"]
