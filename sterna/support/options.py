"""The environment variables that Sterna reads, all of them.

The C runtime reads three more by itself, because it also runs without Python: the thread counts
STERNA_NUM_THREADS, TVM_NUM_THREADS and OMP_NUM_THREADS.
"""

import os
import time


class Options:
    """Settings from the environment, read anew at each access."""

    @property
    def c_compiler(self) -> str | None:
        """CC: the command of the C compiler and linker."""
        return os.environ.get("CC") or None

    @property
    def cxx_compiler(self) -> str | None:
        """CXX: the command of the C++ compiler."""
        return os.environ.get("CXX") or None

    @property
    def ndk_compiler(self) -> str | None:
        """TVM_NDK_CC: the command of the compiler of Android's NDK."""
        return os.environ.get("TVM_NDK_CC") or None

    @property
    def build_time(self) -> int:
        """SOURCE_DATE_EPOCH: the time that artifacts show, in seconds; now if it does not say."""
        given = os.environ.get("SOURCE_DATE_EPOCH", "")
        return int(given) if given.isdigit() else int(time.time())

    @property
    def test_targets(self) -> str | None:
        """STERNA_TEST_TARGETS, else TVM_TEST_TARGETS: the targets to test, with ; between them."""
        for name in ("STERNA_TEST_TARGETS", "TVM_TEST_TARGETS"):
            if os.environ.get(name):
                return os.environ[name]
        return None

    @property
    def require_all(self) -> bool:
        """STERNA_REQUIRE_ALL=1: a test that lacks something it needs fails instead of skipping."""
        return os.environ.get("STERNA_REQUIRE_ALL", "") not in ("", "0")

    @property
    def verify_passes(self) -> bool:
        """STERNA_VERIFY_PASSES=1: what a pass changed is verified before the next one runs."""
        return os.environ.get("STERNA_VERIFY_PASSES", "") not in ("", "0")

    @property
    def check_seals(self) -> bool:
        """STERNA_CHECK_SEALS=0: the digests of compiled files are not checked when they are loaded.

        The C runtime reads it too.
        """
        return os.environ.get("STERNA_CHECK_SEALS", "")[:1] != "0"

    @property
    def cache_folder(self) -> str | None:
        """STERNA_CACHE: where compiled kernels are kept; "off" for nowhere."""
        given = os.environ.get("STERNA_CACHE", "")
        if given == "off":
            return None
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return given or os.path.join(home, "sterna")

    @property
    def cache_bytes(self) -> int:
        """STERNA_CACHE_BYTES: how large the cache may grow; 1 GiB if it does not say."""
        given = os.environ.get("STERNA_CACHE_BYTES", "")
        return int(given) if given.isdigit() else 1 << 30

    @property
    def rpc_secret(self) -> bytes | None:
        """STERNA_RPC_SECRET: what clients, servers, trackers and proxies prove to know."""
        return os.environ.get("STERNA_RPC_SECRET", "").encode() or None

    @property
    def rpc_tls_ca(self) -> str | None:
        """STERNA_RPC_TLS_CA: the file of certificates by which clients know servers; uses TLS."""
        return os.environ.get("STERNA_RPC_TLS_CA") or None

    @property
    def tracker_host(self) -> str | None:
        """TVM_TRACKER_HOST: where the tracker is."""
        return os.environ.get("TVM_TRACKER_HOST") or None

    @property
    def tracker_port(self) -> int | None:
        """TVM_TRACKER_PORT: the tracker's port."""
        given = os.environ.get("TVM_TRACKER_PORT", "")
        return int(given) if given.isdigit() else None

    @property
    def tracker_key(self) -> str | None:
        """TVM_TRACKER_KEY: the key of the servers to ask the tracker for."""
        return os.environ.get("TVM_TRACKER_KEY") or None


options = Options()
