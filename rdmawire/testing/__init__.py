"""For tests of code that uses rdmawire; needs the extra ``rdmawire[hypothesis]``."""
