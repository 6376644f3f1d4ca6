"""What commands know of a broker's metrics: dashboards, alert rules, and a view in the terminal."""
