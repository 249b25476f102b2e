"""Google's protobuf classes of proto/ and of the docs' example: `from suites.testkit.stubs import
kuaishou_pb2, ocean_pb2, tencent_pb2`."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

from .programs import ROOT

with tempfile.TemporaryDirectory() as _folder:
    _google = Path(protoc.__file__).parent / "_proto"
    _words = [f"-I{one}" for one in (ROOT / "proto", ROOT / "docs/examples", _google)]
    _words += [f"--python_out={_folder}", "tencent.proto", "ocean.proto", "kuaishou.proto"]
    assert protoc.main(["protoc", *_words]) == 0
    sys.path.insert(0, _folder)
    import kuaishou_pb2
    import ocean_pb2
    import tencent_pb2

    sys.path.remove(_folder)

__all__ = ["kuaishou_pb2", "ocean_pb2", "tencent_pb2"]
