"""Metrics, alerts, dashboard and runbook: consistency, and tests with real programs.

promtool checks and tests the alert rules. A Prometheus scrapes running programs under light
traffic, evaluates the rules and answers every query of the dashboard. The drills of the runbook are
executed.
"""
