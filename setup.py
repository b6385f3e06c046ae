"""Packaging entry point; all settings are in setup.cfg."""

from setuptools import setup

setup()
