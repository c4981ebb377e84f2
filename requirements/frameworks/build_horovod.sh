#!/bin/sh
# Build Horovod's torch binding into an environment: build_horovod.sh FOLDER INSTALL..., where INSTALL is the command of pip
# or uv that installs into that environment. It takes some minutes of two cores.
# Its last release is older than torch's headers and today's CMake:
# - the headers are in C++20, and its CMakeLists ask for C++14, so the compiler's last option says otherwise;
# - CMake 4 refuses what asks for CMake before 3.5, unless it is told;
# - gloo's default timeout is defined in a header, once for each file that includes it.
set -eu
folder=$1
shift
printf '#!/bin/sh\nexec g++ "$@" -std=gnu++20\n' > "$folder/bin/g++20"
chmod +x "$folder/bin/g++20"
printf 'horovod==0.28.1 --hash=sha256:%s\n' 92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0 \
  > "$folder/horovod.txt"
export PATH="$folder/bin:$PATH" CXX="$folder/bin/g++20" MAKEFLAGS=-j2
export CMAKE_POLICY_VERSION_MINIMUM=3.5 LDFLAGS=-Wl,-z,muldefs
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1
export HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
exec "$@" --quiet --no-build-isolation --no-deps --require-hashes -r "$folder/horovod.txt"
