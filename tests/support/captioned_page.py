"""Read the page that captions a photo, in a browser."""

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

CSS = By.CSS_SELECTOR


def wait(browser, condition):
    return WebDriverWait(browser, 300, 0.05).until(condition)


def words(browser):
    return browser.find_elements(CSS, "#words button")


def answer_of(browser):
    return browser.execute_script("return answer")
