"""Command line of the scene generator: python -m npuforge.scripts.scenes --output scenes/ --count 100 --seed 7."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from npuforge.compile.ir.errors import NpuforgeError
from npuforge.scripts.scenes.write import write_folder


def main() -> int:
    """Writes the folder, prints the path of its annotations."""
    parser = argparse.ArgumentParser(
        prog="python -m npuforge.scripts.scenes",
        description="Write synthetic scenes of machine parts (images/*.png), their boxes (annotations.json, COCO) and oriented boxes (labels/*.txt, YOLO-OBB).",
    )
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=7, help="scene i depends on the seed and i only")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--size", type=int, default=256, help="pixels per side")
    parser.add_argument("--suffix", default=".png", help=".png or .jpg")
    options = parser.parse_args()
    if options.count < 1 or options.size < 128 or options.seed < 0:
        parser.error("expected --count of at least 1, --size of at least 128, --seed of at least 0")
    try:
        print(write_folder(options.output, options.seed, options.count, options.size, options.suffix))
    except (NpuforgeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
