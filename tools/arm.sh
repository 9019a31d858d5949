#!/bin/sh
# Test the Arm kernels under qemu-user, on a Debian or Ubuntu of x86-64: downloads packages into a folder, installs none.
# tools/arm.sh [FOLDER]
set -e
folder=$(realpath -m "${1:-build/arm}")
root=$(realpath "$(dirname "$0")/..")
mkdir -p "$folder/qemu" "$folder/site"
python -c "import shutil, threadpoolctl; shutil.copy(threadpoolctl.__file__, '$folder/site')"
python -c "
import sys
sys.path.insert(0, '$root/chai/kernels/native')
import build
build.build_all([sys.executable, '-m', 'ziglang', 'cc'])"
(cd "$folder/qemu" && apt-get download -q qemu-user-static && dpkg -x qemu-user-static*.deb .)

for pair in arm64:aarch64 armhf:arm; do
    name=${pair%:*} here="$folder/${pair%:*}"
    mkdir -p "$here/lists/partial" "$here/debs/partial" "$here/root"
    touch "$here/status"
    options="-o Dir::State=$here -o Dir::State::Lists=$here/lists -o Dir::State::status=$here/status -o Debug::NoLocking=1
        -o Dir::Cache=$here -o Dir::Cache::archives=$here/debs/ -o APT::Architecture=$name -o APT::Architectures=$name"
    apt-get $options -qq update || true
    apt-get $options -qq -y --download-only --no-install-recommends install python3-numpy python3-pil python3-protobuf \
        python3-pytest python3-pytest-timeout python3-hypothesis python3-rich
    for package in "$here"/debs/*.deb; do dpkg -x "$package" "$here/root"; done
    libraries=$(ls -d "$here"/root/usr/lib/*-linux-gnu*)
    python=$(ls "$here"/root/usr/bin/python3.[0-9]*)
    PYTHONHOME=$here/root/usr PYTHONDONTWRITEBYTECODE=1 \
        PYTHONPATH=$root:$folder/site:$here/root/usr/lib/python3/dist-packages \
        "$folder/qemu/usr/bin/qemu-${pair#*:}-static" -L "$here/root" \
        -E "LD_LIBRARY_PATH=$libraries:$libraries/blas:$libraries/lapack:$here/root/lib/$(basename "$libraries")" \
        "$python" -m pytest -q -p no:cacheprovider "$root/tests/kernels/test_native.py" "$root/tests/kernels/test_floats.py" \
        "$root/tests/kernels/test_conversions.py" "$root/tests/kernels/test_device_blobs.py" "$root/tests/kernels/test_softmax.py" "$root/tests/kernels/test_elements.py" \
        "$root/tests/kernels/test_weights.py" "$root/tests/kernels/test_running.py" \
        -k "not control_c and not fork"
done
