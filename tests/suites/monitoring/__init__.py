"""Metrics, alerts, dashboard and runbook, held against each other and against real programs.

promtool checks and tests the alert rules; a Prometheus scrapes running programs under a little
traffic, evaluates the rules and answers every query of the dashboard; the drills of the runbook are
run as they stand there.
"""
