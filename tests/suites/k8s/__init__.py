"""Dockerfile and k8s/: rendered by kubectl, checked against Kubernetes schemas, and run with the
real programs.

Needs no cluster and no container engine.
"""
