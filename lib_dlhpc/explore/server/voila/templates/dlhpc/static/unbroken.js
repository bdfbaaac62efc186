// A number and its unit stay on one line: the space between them does not break, whatever wrote the words.

const UNIT = /(\d) (?=(?:[nµmkMGTPE]?(?:s|B|W|Wh|J|FLOP|bit|Hz)(?:\/s)?|[KMGT]iB|[MGT]b\/s|min|h|days?|years?|×)(?![\w-]))/g;
const APART = "script, style, textarea, pre, code, svg, mjx-container";

function within(node) {
  if (node.nodeType === Node.TEXT_NODE) {
    const words = node.data.replace(UNIT, "$1\u00a0");
    if (words !== node.data) node.data = words;
  } else if (node.nodeType === Node.ELEMENT_NODE && !node.matches(APART)) node.childNodes.forEach(within);
}

export function unbroken(root) {
  within(root);
  new MutationObserver((changes) => {
    for (const { target, addedNodes } of changes) {
      const place = target.nodeType === Node.TEXT_NODE ? target.parentElement : target;
      if (!place || place.closest(APART)) continue;
      if (target.nodeType === Node.TEXT_NODE) within(target);
      else addedNodes.forEach(within);
    }
  }).observe(root, { childList: true, characterData: true, subtree: true });
}
