"""`npuforge compare`: float reference, integer graph and device side by side, with report and gates."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from npuforge.board_runtime.devices import UIO, check_device
from npuforge.board_runtime.dpu import DEVICE as DPU
from npuforge.board_runtime.heads import Head
from npuforge.compile.ir.errors import GateError, InputError, NpuforgeError, UsageError
from npuforge.compile.ir.samples import list_samples
from npuforge.compile.steps.write_files import check_apart
from npuforge.scripts import model_options as m
from npuforge.scripts.build_folder import Build, open_build
from npuforge.scripts.check_preprocess import MOST_IMAGES, Check
from npuforge.scripts.check_preprocess import check_preprocess as preprocess_check
from npuforge.scripts.common import (
    DEVICE_HELP,
    check_report,
    input_files,
    parse_inputs,
    print_json,
    progress,
    show_notice,
    show_refused_packages,
)
from npuforge.scripts.comparison import COLUMNS, Comparison, Limits, compare
from npuforge.scripts.datasets import Dataset, load_dataset
from npuforge.scripts.report.render import to_json, write_report

Count = Annotated[int, typer.Option("--count", help="Use the first N images by name (0: all)", min=0)]

OUTPUTS_ONLY = (
    f"device {UIO} keeps no layer's output: only what leaves the NPU is compared with the integer graph, bit for bit"
)


def load_truth(build: Build, images: Path, truth: Path, first: int, count: int) -> Dataset:
    """The dataset in the model's classes, images first .. first+count by name (count 0: to the end)."""
    dataset = load_dataset(images, truth, build.preprocess.class_names).with_classes(build.preprocess.class_names)
    taken = dataset.take(first, first + count if count else None)
    if not taken.images:
        raise UsageError(f"--skip {first}: no image is left, {images} has {len(dataset.images)}")
    record = build.preprocess
    if taken.oriented and record.head.kind != "none" and not Head(record).oriented:
        raise InputError(
            f"{truth}: oriented boxes, but the head {record.head.kind} finds upright ones; give upright truth (five values a line, COCO or VOC)"
        )
    return taken


def _print(result: Comparison) -> None:
    data = result.data
    differing, compared = data.differing()
    worst = data.worst_first()[:5]
    print(f"reference: {data.reference.provider} ({data.reference.source})")
    print(f"integer graph against {data.device}: {differing} of {compared} values differ")
    print("worst layers (alone):")
    for layer in worst:
        if layer.alone is not None and layer.accumulated is not None:
            print(
                f"  SQNR {layer.alone.sqnr_db:6.1f} dB alone, {layer.accumulated.sqnr_db:6.1f} dB accumulated, "
                f"cosine {layer.accumulated.cosine:.5f}  {layer.name} ({layer.op})"
            )
    outputs = result.outputs
    print(
        f"network outputs, float against {data.device}: lowest cosine {outputs.cosine:.6f} ({outputs.cosine_of or 'all equal'}), "
        f"largest error {outputs.largest:.5g} ({outputs.largest_of or 'none'})"
    )
    if data.detection_counts is not None:
        print(f"detections: {data.detection_counts}")
    for name, (unequal, count) in data.index_outputs.items():
        print(
            f"output {name} holds class numbers: {unequal} of {count} differ; no part of the gates on cosine and error"
        )
    for name, rows in data.picked_rows.items():
        print(f"the network picks the rows of output {name} itself: {rows}")
    for group in data.channel_groups:
        print(
            f"  {group.output}, {group.name}: float {group.low:.4g} .. {group.high:.4g}, error at most {group.max_abs_error:.4g}, "
            f"mean {group.mean_abs_error:.3g}, {group.distinct_device} distinct values (float: {group.distinct_float})"
            + (" FLATTENED" if group.flattened else "")
        )
    for column in COLUMNS:
        if column in data.accuracy:
            accuracy = data.accuracy[column]
            print(f"mAP50-95 {100 * accuracy.map:5.2f}  mAP50 {100 * accuracy.map50:5.2f}  {column}")
    for gate in data.gates:
        lacking = "no detections" if gate.name == "--min-matched" else "give --truth"
        found = f"not measured ({lacking})" if gate.found is None else f"{gate.found:.6g}"
        print(f"gate {gate.name} {gate.limit:g}: {found}: {'passed' if gate.passed else 'EXCEEDED'}")


def _difference(result: Comparison, build: Build, device: str) -> str:
    """What is wrong where device and integer graph differ, empty if nothing is. Behind a DPU's HardSwish it is a notice."""
    if not result.differing:
        return ""
    if device == UIO:
        return f"{result.differing} values that leave the NPU differ from the integer graph: the overlay or its memory is at fault if sim differs in none"
    if device != DPU:
        return (
            f"{result.differing} values differ between integer graph and {device}: a fault of npuforge, not of quantisation; "
            "please report it with the build folder"
        )
    layers = [name for name, difference in result.differences.items() if difference.differing]
    found = f"{result.differing} values that leave the DPU differ from the integer graph, first in layer {layers[0]}"
    approximated = [n for n in build.qgraph.graph.nodes if n.device == "NPU" and n.activation.kind == "HardSwish"]
    if build.target and approximated:
        result.data.notices.append(f"{found}: a DPU approximates HardSwish (docs/targets.md)")
        return ""
    return f"{found}: this DPU computes otherwise than our model of it; please report it with the build folder"


def _number(value: float | None) -> float | None:
    """A gate's limit; one that is no number would never, or always, hold."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"expected a number, found {value}")
    return value


def _print_check(check: Check) -> None:
    declared = check.declared
    print(
        f"preprocessing: {declared.detections:.1f} detections an image, {declared.agreement:.0%} of their score confirmed"
    )
    for setting in check.tried:
        print(
            f"  {setting.label}: {setting.detections:.1f} detections an image, {setting.agreement:.0%} confirmed, "
            f"{setting.gain:.2f} times the evidence"
        )
    print(check.notice() or "preprocessing: no other setting detects clearly better")


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("compare")
    def command(
        build: Annotated[Path, typer.Argument(help="Folder that npuforge compile wrote")],
        images: Annotated[Path, typer.Argument(help="An image or a folder of images")],
        reference: Annotated[
            str, typer.Option("--reference", help="auto: run it here; or a file of `npuforge reference record`")
        ] = "auto",
        report: Annotated[
            Path | None, typer.Option("--report", help="The HTML report; JSON of the same name beside it")
        ] = None,
        truth: Annotated[
            Path | None,
            typer.Option("--truth", help="COCO JSON, or a folder of YOLO text (oriented boxes too) or VOC XML"),
        ] = None,
        device: Annotated[str, typer.Option("--device", help=DEVICE_HELP)] = "sim",
        board: m.Board = None,
        given: m.FixedInputs = None,
        count: Count = 0,
        layer_images: Annotated[int, typer.Option("--layer-images", help="Images for the per-layer losses", min=1)] = 4,
        threads: m.Threads = 2,
        max_map_drop: Annotated[
            float | None,
            typer.Option(
                "--max-map-drop",
                help="Gate: points of mAP50-95, float minus device",
                min=-100,
                max=100,
                callback=_number,
            ),
        ] = None,
        min_cosine: Annotated[
            float | None,
            typer.Option("--min-cosine", help="Gate: of every network output", min=-1, max=1, callback=_number),
        ] = None,
        max_abs_error: Annotated[
            float | None,
            typer.Option("--max-abs-error", help="Gate: of every network output", min=0, callback=_number),
        ] = None,
        max_mean_error: Annotated[
            float | None,
            typer.Option(
                "--max-mean-error",
                help="Gate: mean error of every layer alone, as a share of its largest magnitude (bf16: 1e-3)",
                min=0,
                callback=_number,
            ),
        ] = None,
        min_matched: Annotated[
            float | None,
            typer.Option(
                "--min-matched",
                help="Gate: share of the detections of float network and device (or of rows that the network picks) with a partner in the other",
                min=0,
                max=1,
                callback=_number,
            ),
        ] = None,
        check_preprocess: Annotated[
            bool,
            typer.Option(
                "--check-preprocess",
                help="Try other colour orders, scales and letterboxes on the float network; warn where one is better",
            ),
        ] = False,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """Compare float, integer graph and device. Example: npuforge compare build/ images/ --report report.html"""
        check_device(device, board)
        if max_map_drop is not None and truth is None:
            raise UsageError("--max-map-drop needs the true boxes: give them with --truth")
        if report is not None:
            check_report(report, "--report")
        opened = open_build(build)
        show_refused_packages()
        dataset = None if truth is None else load_truth(opened, images, truth, 0, count)
        files = list_samples(images) if dataset is None else [entry.path for entry in dataset.images]
        fixed = parse_inputs(given or [])
        if report is not None:
            sources = [*files, *opened.files, *input_files(given or []), Path(reference)]
            check_apart(
                [report, report.with_suffix(".json")], sources if truth is None else [*sources, truth], "--report"
            )
        if dataset is None and count:
            files = files[:count]
        with progress(json) as show:
            result = compare(
                opened,
                files,
                device=device,
                board=board,
                reference=reference,
                threads=threads,
                layer_images=layer_images,
                truth=dataset,
                limits=Limits(max_map_drop, min_cosine, max_abs_error, max_mean_error, min_matched),
                progress=show,
                fixed=fixed,
            )
            check = None
            if check_preprocess:
                check = preprocess_check(
                    opened.reference,
                    opened.preprocess,
                    [opened.sample(path, fixed) for path in files[:MOST_IMAGES]],
                    dataset,
                    show,
                )
                result.data.notices += [check.notice()] if check.better else []
        if device == UIO:
            result.data.notices.append(OUTPUTS_ONLY)
            show_notice(OUTPUTS_ONLY)
        fault = _difference(result, opened, device)
        if report is not None:
            write_report(result.data, report, report.with_suffix(".json"))
        if json:
            print_json(to_json(result.data))
        else:
            _print(result)
            if check is not None:
                _print_check(check)
            if report is not None:
                print(f"report: {report}")
        if fault:
            raise NpuforgeError(fault)
        failed = [gate.name for gate in result.data.gates if not gate.passed]
        if failed:
            raise GateError(f"precision gate exceeded: {', '.join(failed)}" + (f"; see {report}" if report else ""))
