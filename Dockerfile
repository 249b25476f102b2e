# One image with both programs, rtad and rtad-loader. docs/guides/kubernetes.md says how it is built and what of it was tried.
#
# Debian and not something without a shell: the build on many pods is a shell script over rtad-loader. Both bases are Debian 12,
# so that the programs find the C library that they were linked with. For a mirror, or a digest, give the build another base.
ARG RUST_IMAGE=docker.io/library/rust:1.95.0-slim-bookworm
ARG BASE_IMAGE=docker.io/library/debian:bookworm-20260918-slim

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY . .
# Line tables are three quarters of the programs; a panic says its place without them.
ENV CARGO_PROFILE_RELEASE_STRIP=debuginfo
RUN cargo build --release --locked --package rtad --package rtad-loader

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="rtad" \
      org.opencontainers.image.description="Tells an ad platform whether a device is one you already know" \
      org.opencontainers.image.licenses="Apache-2.0"
# Whom to trust: stores are asked over TLS, and the slim base has no certificates.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /usr/share/doc/rtad/LICENSE
COPY --from=build /src/target/release/rtad /src/target/release/rtad-loader /usr/local/bin/
# A number: a cluster that forbids root cannot tell what a name stands for. Neither program writes but where it is told to.
USER 65532:65532
EXPOSE 8080 9090
CMD ["rtad", "serve"]
