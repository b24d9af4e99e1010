"""An application as it is written for the vendor's VART, with nothing of npuforge in it: several threads share a list of runners of the DPU subgraphs.

    python vart_application.py model.xmodel images.npy threads results.npz

images.npy: float32 [count, H, W, C], the values the network was trained on. Fixed-point inputs get round(value · 2^fix_point) as int8, any other input
float32. results.npz: one array [count, …] per output tensor, in the type of the buffers.
"""

import sys
import threading

import numpy as np
import vart
import xir


def dpu_subgraphs(graph):
    """The children of the root that run on the accelerator, in order."""
    children = graph.get_root_subgraph().toposort_child_subgraph()
    return [child for child in children if child.has_attr("device") and child.get_attr("device").upper() == "DPU"]


def fixed_point(tensor):
    """Fraction bits, None where the tensor has no single scale."""
    return tensor.get_attr("fix_point") if tensor.has_attr("fix_point") else None


def prepared(image, tensor):
    """The input buffer: [1, H, W, C]."""
    fraction_bits = fixed_point(tensor)
    if fraction_bits is None:
        return np.ascontiguousarray(image[np.newaxis], np.float32)
    scaled = np.floor(image[np.newaxis] * 2.0**fraction_bits + 0.5)
    return np.ascontiguousarray(np.clip(scaled, -128, 127), np.int8)


def worker(number, runners, lock, images, step, results):
    """Every `step`-th image from `number` on. A runner is taken from the shared list for two jobs that are in flight together."""
    mine = list(range(number, len(images), step))
    while mine:
        with lock:
            runner = runners.pop(0)
            runners.append(runner)
        jobs = []
        for index in mine[:2]:
            tensor = runner.get_input_tensors()[0]
            outputs = [
                np.zeros(tuple(t.dims), np.float32 if fixed_point(t) is None else np.int8)
                for t in runner.get_output_tensors()
            ]
            inputs = [prepared(images[index], tensor)]
            jobs.append((index, inputs, outputs, runner.execute_async(inputs, outputs)))
        for index, _, outputs, job in jobs:
            status = runner.wait(job)
            if status != 0:
                raise RuntimeError(f"image {index}: status {status}")
            results[index] = {t.name: array for t, array in zip(runner.get_output_tensors(), outputs, strict=True)}
        del mine[:2]


def main(model, images_file, thread_count, results_file):
    """Runs all images, writes the results."""
    images = np.load(images_file)
    graph = xir.Graph.deserialize(model)
    subgraph = dpu_subgraphs(graph)[0]
    runners = [vart.Runner.create_runner(subgraph, "run") for _ in range(2)]
    results, lock = {}, threading.Lock()
    threads = [
        threading.Thread(target=worker, args=(number, runners, lock, images, thread_count, results))
        for number in range(thread_count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = sorted(results[0])
    np.savez(results_file, **{name: np.concatenate([results[i][name] for i in range(len(images))]) for name in names})
    del runners  # before the graph they belong to


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
