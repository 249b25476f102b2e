"""Google's protobuf classes of proto/: `from suites.testkit.stubs import ocean_pb2,
tencent_pb2`."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

from .programs import ROOT

with tempfile.TemporaryDirectory() as _folder:
    _google = Path(protoc.__file__).parent / "_proto"
    _words = [f"-I{ROOT / 'proto'}", f"-I{_google}", f"--python_out={_folder}"]
    assert protoc.main(["protoc", *_words, "tencent.proto", "ocean.proto"]) == 0
    sys.path.insert(0, _folder)
    import ocean_pb2
    import tencent_pb2

    sys.path.remove(_folder)

__all__ = ["ocean_pb2", "tencent_pb2"]
