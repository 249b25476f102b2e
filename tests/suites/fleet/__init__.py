"""A fleet of three rtad behind HAProxy, all reading one S3 store, under a load that compares every
answer.

Pods are restarted and killed, generations published, the store is cut off, broken configs are
pushed. No request may fail but those that a killed pod held, and no answer may be wrong. The
balancer's config is docs/haproxy.cfg. `up` is the fleet of `make fleet`.
"""
