"""Float mAP of the bundled networks on scenes that training has not seen. No PyTorch.

    python -m npuforge.scripts.evaluate_demo --count 300
    python -m npuforge.scripts.evaluate_demo --count 300 --oriented

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


def evaluate_demo(
    model: Path, count: int, seed: int = UNSEEN_SEED, threads: int = 1, oriented: bool = False
) -> Metrics:
    """COCO metrics of the float network on `count` fresh scenes; of oriented boxes for the network that finds those."""
    record = load_preprocess(DATA / ("oriented.yaml" if oriented else "demo.yaml"))
    detector = OnnxDetector(model, record, settings=COCO_SETTINGS, threads=threads)
    with tempfile.TemporaryDirectory() as name:
        truth = write_folder(Path(name), seed, count)
        folder = truth.parent
        labels = folder / "labels" if oriented else truth
        return evaluate(detector, load_dataset(folder / "images", labels, record.class_names)).metrics


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Float mAP of the bundled networks on unseen synthetic scenes.")
    parser.add_argument(
        "--oriented", action="store_true", help="the network for oriented boxes, scored by their corners"
    )
    parser.add_argument("--model", type=Path, help="demo.onnx or oriented.onnx of scripts/demo_data by default")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=UNSEEN_SEED)
    options = parser.parse_args()
    model = options.model or DATA / ("oriented.onnx" if options.oriented else "demo.onnx")
    metrics = evaluate_demo(model, options.count, options.seed, oriented=options.oriented)
    print(json.dumps(metrics.to_json(), indent=1))


if __name__ == "__main__":
    main()
