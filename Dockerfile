# The compile pipeline and the simulator in one image; nothing vendor-bound, no compiler in the final stage.
# No image registry at hand: make the base with scripts/make-base-image, then build as usual.
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS build
ENV DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_CERT=/etc/ssl/certs/ca-certificates.crt
RUN apt-get update && apt-get install -y --no-install-recommends \
        ca-certificates g++ python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/npuforge && /opt/npuforge/bin/pip install --upgrade "pip>=25,<27"
WORKDIR /source
COPY constraints.txt ./
COPY pyproject.toml setup.py LICENSE README.md ./
COPY src src
COPY hw_kernels hw_kernels
COPY quant quant
COPY compile compile
COPY board_runtime board_runtime
COPY scripts scripts
RUN /opt/npuforge/bin/pip install --constraint constraints.txt . \
    && /opt/npuforge/bin/pip uninstall --yes pip setuptools \
    && find /opt/npuforge -depth \( -name tests -o -name __pycache__ \) -type d -path '*/site-packages/*' -exec rm -rf {} + \
    && /opt/npuforge/bin/python -m compileall -q /opt/npuforge/lib

FROM ${BASE}
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
