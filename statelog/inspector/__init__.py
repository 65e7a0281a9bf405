"""The inspector: a web page that shows a store and, if allowed, changes it. `statelog ui` starts it."""
