"""Runs the tests of this folder; for one that fails, prints the bytes that went out and came back."""

import sys
import unittest


class Result(unittest.TextTestResult):
    def _show(self, test):
        print(f"\n{test}\n{getattr(test, 'exchange', None)}", file=sys.stderr)

    def addFailure(self, test, err):
        self._show(test)
        super().addFailure(test, err)

    def addError(self, test, err):
        self._show(test)
        super().addError(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            print(f"\n{subtest}", file=sys.stderr)
            self._show(test)
        super().addSubTest(test, subtest, err)


TESTS = ["test_tencent", "test_tencent_ids", "test_failures", "test_ocean", "test_random"]

suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:] or TESTS)
result = unittest.TextTestRunner(resultclass=Result).run(suite)
sys.exit(not (result.wasSuccessful() and result.testsRun))
