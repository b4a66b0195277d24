# SPDX-License-Identifier: Apache-2.0
#
# docker build --build-arg VERSION="$(git describe --tags --always --dirty)" -t stageprof .
# docker run --rm --pid=host --cap-drop=ALL --cap-add=BPF --cap-add=PERFMON \
#   --cap-add=SYS_PTRACE --cap-add=DAC_READ_SEARCH stageprof doctor
#
# The program reads NVML where the container runtime provides it (--gpus=all);
# that is why it needs a C library, and the image has one.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
ENV CGO_ENABLED=1 CGO_CFLAGS="-O2 -Wno-deprecated-declarations"
RUN go build -trimpath -buildvcs=false -ldflags "-X main.version=${VERSION}" -o /stageprof ./cmd/stageprof

FROM debian:bookworm-slim
COPY --from=build /stageprof /usr/local/bin/stageprof
COPY LICENSE /usr/share/doc/stageprof/
# Of NVIDIA's container runtime: NVML, and nothing to compute with.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility
ENTRYPOINT ["stageprof"]
