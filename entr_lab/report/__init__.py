"""Tables, plots and verdicts on results of the simulator and of the real trainer."""
