"""Durable execution: what of it stands on the errors alone, webhooks and times of schedules."""
