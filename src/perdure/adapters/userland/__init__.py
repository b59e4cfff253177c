"""The user's own code in a script that knows nothing of perdure: functions, time and chance, what it does outside."""
