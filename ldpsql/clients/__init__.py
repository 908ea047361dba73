"""Programs that draw the reports of a mechanism elsewhere: modules for JavaScript, and vectors that show them to be right."""
