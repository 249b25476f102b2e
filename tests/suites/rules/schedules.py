"""Schedules of strategies and periods of caps, by Python's time zones."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
MINUTE = timedelta(minutes=1)
# The longest cache time of the configs.
HORIZON = timedelta(hours=25)


def seconds(duration):
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[duration[-1]]


def clock_minutes(text):
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def clock_holds(days, hours, local):
    """Whether a local time is in these days and hours."""
    today = local.weekday()
    minutes = local.hour * 60 + local.minute
    for one in hours or ["00:00-24:00"]:
        begin, end = map(clock_minutes, one.split("-"))
        is_over_midnight = end <= begin
        last = 24 * 60 if is_over_midnight else end
        if begin <= minutes < last and fits_day(days, today):
            return True
        if is_over_midnight and minutes < end and fits_day(days, (today - 1) % 7):
            return True
    return False


def fits_day(days, weekday):
    return not days or DAYS[weekday] in days


def is_timed(strategy):
    return any(strategy.get(key) for key in ("valid_from", "valid_until", "days", "hours"))


def holds_at(strategy, default_zone, at):
    """Whether the schedule holds; None without a schedule."""
    if not is_timed(strategy):
        return None
    begin, end = (strategy.get(key) for key in ("valid_from", "valid_until"))
    if begin and at < datetime.fromisoformat(begin):
        return False
    if end and at >= datetime.fromisoformat(end):
        return False
    days, hours = strategy.get("days"), strategy.get("hours")
    if not days and not hours:
        return True
    zone = ZoneInfo(strategy.get("time_zone", default_zone))
    return clock_holds(days, hours, at.astimezone(zone))


def next_change(strategy, default_zone, at):
    """The next instant at which the schedule begins or ceases to hold, if it is soon."""
    if not is_timed(strategy):
        return None
    bounds = [strategy.get(key) for key in ("valid_from", "valid_until")]
    instants = [datetime.fromisoformat(one) for one in bounds if one]
    instants = [one.astimezone(UTC) for one in instants if at < one.astimezone(UTC) < at + HORIZON]
    if strategy.get("days") or strategy.get("hours"):
        minute = at.replace(second=0, microsecond=0)
        instants += [minute + step * MINUTE for step in range(1, HORIZON // MINUTE)]
    holds = holds_at(strategy, default_zone, at)
    for instant in sorted(instants):
        if holds_at(strategy, default_zone, instant) != holds:
            return instant
    return None


def local_period(cap, default_zone, at):
    """The local day or hour of an instant. An hour that the clock repeats comes twice."""
    zone = ZoneInfo(cap.get("time_zone", default_zone))
    local = at.astimezone(zone)
    if cap["period"] == "day":
        return local.date().isoformat()
    return f"{local.date().isoformat()} {local.hour} {local.utcoffset()}"


def period(cap, default_zone, at):
    """The name of the period of an instant, and the period's end."""
    name = local_period(cap, default_zone, at)
    instant = at.replace(second=0, microsecond=0)
    while local_period(cap, default_zone, instant) == name:
        instant += MINUTE
    return name, instant


@lru_cache
def transitions(zone, first, last):
    """Instants between two others at which the clock of a zone changes."""
    zone, step, found = ZoneInfo(zone), timedelta(hours=1), []
    while first < last:
        if first.astimezone(zone).utcoffset() != (first + step).astimezone(zone).utcoffset():
            instant = first
            while instant.astimezone(zone).utcoffset() == first.astimezone(zone).utcoffset():
                instant += MINUTE
            found.append(instant)
        first += step
    return found
