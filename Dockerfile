# The compile pipeline and the simulator in one image; nothing vendor-bound, no compiler in the final stage.
#
#   docker build -t npuforge .                              # no image registry at hand: make the base with scripts/make-base-image first
#   docker build --target vitis-ai --build-arg VITIS_AI_IMAGE=xilinx/vitis-ai-pytorch-cpu:latest -t npuforge-vitis-ai .
#
# The second stands on the vendor's image, so that `npuforge compile --target dpu:…` runs vai_c_xir itself. Without BuildKit every stage before the
# wanted one is built: so that the first command never pulls the vendor's image, the stage stands on `kit` unless an image is named, and says so.
ARG BASE=debian:bookworm-slim
ARG VITIS_AI_IMAGE=kit

FROM scratch AS sources
COPY constraints.txt pyproject.toml setup.py LICENSE README.md /
COPY src /src
COPY hw_kernels /hw_kernels
COPY quant /quant
COPY compile /compile
COPY board_runtime /board_runtime
COPY scripts /scripts

FROM ${BASE} AS build
ENV DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_CERT=/etc/ssl/certs/ca-certificates.crt
RUN apt-get update && apt-get install -y --no-install-recommends \
        ca-certificates g++ python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/npuforge && /opt/npuforge/bin/pip install --upgrade "pip>=25,<27"
WORKDIR /source
COPY --from=sources / ./
RUN /opt/npuforge/bin/pip install --constraint constraints.txt . \
    && /opt/npuforge/bin/pip uninstall --yes pip setuptools \
    && find /opt/npuforge -depth \( -name tests -o -name __pycache__ \) -type d -path '*/site-packages/*' -exec rm -rf {} + \
    && /opt/npuforge/bin/python -m compileall -q /opt/npuforge/lib

FROM ${BASE} AS kit
LABEL org.opencontainers.image.title="npuforge" \
      org.opencontainers.image.description="ONNX detection networks to FPGA and NPU boards: compiler, quantiser, bit-exact simulator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends python3-minimal libpython3-stdlib \
    && rm -rf /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* \
    && useradd --uid 1000 --create-home npuforge
COPY --from=build /opt/npuforge /opt/npuforge
ENV PATH=/opt/npuforge/bin:$PATH HOME=/tmp MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1
USER npuforge
WORKDIR /work
ENTRYPOINT ["npuforge"]
CMD ["--help"]

# The vendor's Python is 3.8 and its compiler 9: npuforge gets its own from conda-forge, by the vendor's conda. Its tools stay in their environment.
FROM ${VITIS_AI_IMAGE} AS vitis-ai
ARG VITIS_AI_IMAGE
ARG VITIS_AI_ENV=vitis-ai-pytorch
ENV VITIS_AI_BIN=/opt/vitis_ai/conda/envs/${VITIS_AI_ENV}/bin PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
USER root
WORKDIR /source
COPY --from=sources / ./
RUN if [ "$VITIS_AI_IMAGE" = kit ]; then \
        echo "notice: no vendor's image (--build-arg VITIS_AI_IMAGE=): the stage vitis-ai is npuforge without vai_c_xir"; exit 0; \
    fi; \
    test -x "$VITIS_AI_BIN/vai_c_xir" \
        || { echo "error: no vai_c_xir in $VITIS_AI_BIN; name its conda environment with --build-arg VITIS_AI_ENV=" >&2; exit 1; }; \
    /opt/vitis_ai/conda/bin/conda create --yes --prefix /opt/npuforge --override-channels --channel conda-forge python=3.11 pip gxx=12 \
    && /opt/vitis_ai/conda/bin/conda clean --all --yes \
    && PATH=/opt/npuforge/bin:$PATH pip install --constraint constraints.txt .
ENV PATH=/opt/npuforge/bin:$VITIS_AI_BIN:$PATH HOME=/tmp MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1
WORKDIR /work
ENTRYPOINT ["npuforge"]
CMD ["--help"]

FROM kit AS npuforge
