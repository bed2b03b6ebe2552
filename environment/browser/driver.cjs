// Drives a notebook in Chromium for the tests TestBrowser and TestLab of kernels/: the classic notebook, or
// the page of lab/. It reads one command per line from standard input, each a JSON object, and answers
// each with a line:
//
//   {"do": "open", "url": URL}                     opens a page with a notebook, and waits until its kernel is connected
//   {"do": "close"}                                closes the page
//   {"do": "click", "selector": S}                 clicks on an element
//   {"do": "press", "keys": K}                     presses keys, such as "Control+Enter"
//   {"do": "type", "text": T}                      types text
//   {"do": "wait", "selector": S, "pattern": P, "figures": N}
//                                                  waits until the text of an element matches the regular expression P
//                                                  and it has at least N figures; an output with another error is an error
//   {"do": "evaluate", "script": JS}               evaluates an expression in the page
//   {"do": "screenshot", "path": FILE, "selector": S}
//                                                  scrolls to an element, if S is given, and saves what the window shows
//
// An answer has "text", what wait has matched against or the value of the expression, or "error" and
// "text", the text of the page. "seconds" in a command limits the time it takes (default 60). The page
// can reach this machine only.
'use strict';
const readline = require('readline');
const { chromium } = require('playwright-core');

const isConnected = () => document.title === 'ready' ||
  Boolean(window.Jupyter && Jupyter.notebook && Jupyter.notebook.kernel && Jupyter.notebook.kernel.is_connected());

// matches returns null as long as the text of the element does not match.
const matches = ([selector, pattern, figures]) => {
  const element = document.querySelector(selector);
  if (element === null) return null;
  const text = element.innerText;
  const drawn = element.querySelectorAll('img, .output_svg').length;
  if (new RegExp(pattern, 's').test(text) && drawn >= figures) return { text };
  return element.querySelector('.output_error, [data-mime-type="application/vnd.jupyter.stderr"]') ? { error: 'the cell has ended in an error' } : null;
};

async function execute(context, state, command) {
  const timeout = 1000 * (command.seconds || 60);
  switch (command.do) {
    case 'open':
      state.page = await context.newPage();
      state.page.setDefaultTimeout(timeout);
      state.page.on('pageerror', (err) => process.stderr.write(`${err.stack}\n`));
      await state.page.goto(command.url);
      await state.page.waitForFunction(isConnected, null, { timeout });
      return {};
    case 'close':
      await state.page.close();
      return {};
    case 'click':
      await state.page.click(command.selector, { timeout });
      return {};
    case 'press':
      await state.page.keyboard.press(command.keys);
      return {};
    case 'type':
      await state.page.keyboard.type(command.text);
      return {};
    case 'wait': {
      const found = await state.page.waitForFunction(matches, [command.selector, command.pattern, command.figures || 0], { timeout, polling: 100 });
      const { text, error } = await found.jsonValue();
      if (error) throw new Error(error);
      return { text };
    }
    case 'evaluate':
      return { text: String(await state.page.evaluate(command.script)) };
    case 'screenshot':
      if (command.selector) {
        await state.page.locator(command.selector).first().scrollIntoViewIfNeeded({ timeout });
      }
      await state.page.screenshot({ path: command.path });
      return {};
    default:
      throw new Error(`unknown command ${JSON.stringify(command)}`);
  }
}

async function main() {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
  });
  const context = await browser.newContext({ viewport: { width: 1100, height: 1300 } });
  await context.route((url) => url.hostname !== '127.0.0.1', (route) => route.abort());
  const state = {};
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = await execute(context, state, JSON.parse(line));
    } catch (err) {
      answer = { error: String(err.message) };
      try {
        answer.text = await state.page.innerText('body', { timeout: 5000 });
      } catch {} // there is no page, or it does not answer
    }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  await browser.close();
}

main().catch((err) => {
  process.stderr.write(`${err.stack}\n`);
  process.exit(1);
});
