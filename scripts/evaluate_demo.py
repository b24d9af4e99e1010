"""Float mAP of the bundled network on scenes that training has not seen. No PyTorch.

    python -m npuforge.scripts.evaluate_demo --count 300

The scenes are the stream of seed 3 (training used 1, the figure printed while training 2), scored by COCO's rules.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from npuforge.board_runtime.heads import COCO_SETTINGS
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.scripts.datasets import load_dataset
from npuforge.scripts.evaluation import OnnxDetector, evaluate
from npuforge.scripts.mean_average_precision import Metrics
from npuforge.scripts.scenes import write_folder

DATA = Path(__file__).parent / "demo_data"
UNSEEN_SEED = 3


def evaluate_demo(model: Path, count: int, seed: int = UNSEEN_SEED, threads: int = 1) -> Metrics:
    """COCO metrics of the float network on `count` fresh scenes."""
    detector = OnnxDetector(model, load_preprocess(DATA / "demo.yaml"), settings=COCO_SETTINGS, threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        truth = write_folder(Path(folder), seed, count)
        return evaluate(detector, load_dataset(truth.parent / "images", truth)).metrics


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Float mAP of the bundled network on unseen synthetic scenes.")
    parser.add_argument("--model", type=Path, default=DATA / "demo.onnx")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=UNSEEN_SEED)
    options = parser.parse_args()
    print(json.dumps(evaluate_demo(options.model, options.count, options.seed).to_json(), indent=1))


if __name__ == "__main__":
    main()
