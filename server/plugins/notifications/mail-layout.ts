/**
 * Formats a mail as plain text and as simple HTML: the same content, without images or external resources, for any mail
 * program.
 */
import { escapeHtml, plainWords } from "../../core/foreign-text.ts";

export interface Link {
  label: string;
  /** A URL of this service. */
  url: string;
}

export interface Line {
  /** Our own text, with names in it that owners chose. */
  text: string;
  /** Third-party texts, each with a label of ours. */
  quotes?: readonly (readonly [what: string, words: string])[];
  links?: readonly Link[];
}

export interface Letter {
  subject: string;
  title: string;
  /** Sentences above the list. */
  lead: readonly string[];
  lines: readonly Line[];
  /** The main action, as a button; below the list if there is one. */
  action?: Link;
  foot: readonly Line[];
}

const MAX_NAME = 60;
const MAX_QUOTE = 160;

/** A name from an owner: one visible line, shortened. */
export const nameOf = (text: unknown, otherwise: string): string =>
  harmless(plainWords(text, MAX_NAME)) || otherwise;

/** Mail programs turn text into links, so third-party text is changed to prevent that. */
function harmless(words: string): string {
  return words
    .replaceAll("://", "[:]//")
    .replaceAll("@", "[at]")
    .replaceAll(/(?<=[\p{L}\p{N}])\.(?=[\p{L}\p{N}])/gu, "[.]");
}

const quoteOf = (words: string): string => `“${harmless(plainWords(words, MAX_QUOTE))}”`;
const QUOTED = "third-party text, not from Purser";

export function asText({ title, lead, lines, action, foot }: Letter): string {
  const parts = [title, ...lead];
  const listed = lines.map((line) => `- ${textOfLine(line, "  ")}`);
  if (listed.length > 0) parts.push(listed.join("\n"));
  if (action) parts.push(`${action.label}:\n${action.url}`);
  parts.push(["-- ", ...foot.map((line) => textOfLine(line, ""))].join("\n"));
  return `${parts.join("\n\n")}\n`;
}

function textOfLine({ text, quotes = [], links = [] }: Line, indent: string): string {
  return [
    text,
    ...quotes.map(([what, words]) => `${indent}${what} (${QUOTED}): ${quoteOf(words)}`),
    ...links.map(({ label, url }) => `${indent}${label}: ${url}`),
  ].join("\n");
}

const INK = "#1a1d21";
const QUIET = "#565d66";
const ACCENT = "#0b5fce";

/** The colours work in light and dark mail programs. */
export function asHtml({ subject, title, lead, lines, action, foot }: Letter): string {
  const paragraphs = lead.map((text) => `<p style="margin:0 0 16px">${escapeHtml(text)}</p>`);
  const items = lines.map((line) => `<li style="margin:0 0 14px">${htmlOfLine(line)}</li>`);
  const list =
    items.length > 0 ? `<ul style="margin:0 0 20px;padding:0 0 0 20px">${items.join("")}</ul>` : "";
  const button = action
    ? `<p style="margin:0 0 24px"><a href="${escapeHtml(action.url)}" style="display:inline-block;padding:11px 18px;border-radius:8px;background:${ACCENT};color:#ffffff;font-weight:600;text-decoration:none">${escapeHtml(action.label)}</a></p>`
    : "";
  const small = foot.map((line) => `<p style="margin:0 0 8px">${htmlOfLine(line)}</p>`).join("");
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(subject)}</title>
</head>
<body style="margin:0;padding:24px 16px;background:#ffffff;color:${INK};font:16px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif">
<div role="article" aria-label="${escapeHtml(title)}" style="max-width:560px;margin:0 auto">
<h1 style="margin:0 0 16px;font-size:21px;line-height:1.3">${escapeHtml(title)}</h1>
${paragraphs.join("\n")}
${list}
${button}
<div style="padding:16px 0 0;border-top:1px solid #d5d9de;color:${QUIET};font-size:13px">${small}</div>
</div>
</body>
</html>
`;
}

function htmlOfLine({ text, quotes = [], links = [] }: Line): string {
  return [
    escapeHtml(text),
    ...quotes.map(
      ([what, words]) =>
        `<span style="color:${QUIET}">${escapeHtml(what)} (${QUOTED}): <q style="quotes:none">${escapeHtml(quoteOf(words))}</q></span>`,
    ),
    ...(links.length > 0
      ? [
          links
            .map(
              ({ label, url }) =>
                `<a href="${escapeHtml(url)}" style="color:${ACCENT}">${escapeHtml(label)}</a>`,
            )
            .join(" &nbsp;·&nbsp; "),
        ]
      : []),
  ].join("<br>");
}
