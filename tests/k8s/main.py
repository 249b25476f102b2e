"""Runs the tests of this folder, or those that are named."""

import sys
import unittest

TESTS = ["test_manifests", "test_serving", "test_jobs", "test_image", "test_pages"]

suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:] or TESTS)
result = unittest.TextTestRunner().run(suite)
sys.exit(not (result.wasSuccessful() and result.testsRun))
