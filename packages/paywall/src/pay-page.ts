/** The page that a browser gets instead of a JSON 402: it pays with the visitor's own wallet. */
import { escapeHtml } from "./foreign-json.ts";
import type { PaymentRequired } from "@x402/core/types";
import { getAddress } from "viem";
import { formatAtomic, parseAtomic } from "./money.ts";
import { findAmong, type PaymentNetwork } from "./networks.ts";
import { isForVersion1 } from "./scheme.ts";

interface PayPageOptions {
  required: PaymentRequired;
  networks: readonly PaymentNetwork[];
  /** The path of the page's own script and style. */
  assetsPath: string;
  /** The RPC URL for a wallet that does not know the chain yet. */
  walletRpcUrl: (network: PaymentNetwork) => string;
  /** The path of a script that announces one more wallet to the page (EIP-6963). */
  walletScript?: string | undefined;
}

export function payPage(options: PayPageOptions): string {
  const { required, networks, assetsPath, walletRpcUrl, walletScript } = options;
  // The page's script signs EIP-3009 transfers only, and takes the same entry.
  const terms = required.accepts.find(isForVersion1);
  const network = terms && findAmong(terms.network, networks);
  if (!terms || !network) throw new Error("a pay page needs terms on a known network");
  const price = formatAtomic(parseAtomic(terms.amount) ?? 0n);
  const payTo = getAddress(terms.payTo);
  const title = required.resource.description ?? "";
  const attributes = Object.entries({
    network: network.id,
    scheme: terms.scheme,
    transfer: (terms.extra as { assetTransferMethod?: string }).assetTransferMethod ?? "",
    "chain-name": network.name,
    "rpc-url": walletRpcUrl(network),
    explorer: network.explorerUrl,
    symbol: network.nativeSymbol,
  }).map(([name, value]) => ` data-${name}="${escapeHtml(value)}"`);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${escapeHtml(`Pay ${price} USDC`)}</title>
<link rel="icon" href="${escapeHtml(assetsPath)}/mark.svg" type="image/svg+xml">
<link rel="stylesheet" href="${escapeHtml(assetsPath)}/look.css">
<link rel="stylesheet" href="${escapeHtml(assetsPath)}/pay.css">
${walletScript === undefined ? "" : `<script type="module" src="${escapeHtml(walletScript)}"></script>\n`}<script type="module" src="${escapeHtml(assetsPath)}/pay.js"></script>
</head>
<body${attributes.join("")}>
<header class="top">
<span class="logo">${MARK}<span>Purser</span></span>
<span class="kind">402 Payment Required</span>
</header>
<main>
<div>
<h1>${escapeHtml(price)} <span class="unit">USDC</span></h1>
<p class="lead">${escapeHtml(title === "" ? "This resource is paid per request." : title)}</p>
</div>
<dl>
<div><dt>Network</dt><dd>${escapeHtml(network.name)}</dd></div>
<div><dt>Pay to</dt><dd class="copyable"><code>${payTo}</code>${copyButton("address", payTo)}</dd></div>
<div><dt>Resource</dt><dd><code>${escapeHtml(required.resource.url)}</code></dd></div>
</dl>
<div class="pay">
<div id="wallets" class="wallets" role="group" aria-label="Wallets"></div>
<p id="status" class="note" role="status" hidden></p>
<noscript><p class="note">Paying in the browser needs JavaScript.</p></noscript>
</div>
<section id="result" aria-labelledby="bought" hidden>
<h2 id="bought" tabindex="-1">Receipt</h2>
<p id="receipt" class="copyable"><span>Transaction</span> <a target="_blank" rel="noreferrer"></a>${copyButton("transaction hash")}</p>
<pre id="data" tabindex="0" role="region" aria-label="Answer"></pre>
</section>
<details>
<summary>For programs and agents</summary>
<p>Request this URL with any x402 client: the terms are in the <code>PAYMENT-REQUIRED</code> header of the
402 response, and the proof goes into <code>PAYMENT-SIGNATURE</code>. You sign an authorization for exactly this
amount and pay no gas.</p>
</details>
</main>
<span id="copied" class="sr-only" role="status"></span>
</body>
</html>
`;
}

/** Purser's logo, as the web app draws it. */
const MARK = `<svg width="28" height="28" viewBox="0 0 32 32" aria-hidden="true"><path class="mark-load" d="M8 16a8 8 0 0 0 16 0z"/><g fill="none" stroke="currentColor" stroke-width="2.6"><circle cx="16" cy="16" r="8.2"/><path d="M2.5 16h27"/></g></svg>`;

/** Hidden until the page's script runs. */
const copyButton = (what: string, value = ""): string =>
  `<button type="button" class="copy" data-copy="${value}" aria-label="Copy ${what}" title="Copy ${what}" hidden>` +
  icon(
    "copy-icon",
    '<rect x="7" y="7" width="10" height="10" rx="2"/><path d="M13 7V5a2 2 0 0 0-2-2H5a2 2 0 0 0-2 2v6a2 2 0 0 0 2 2h2"/>',
  ) +
  icon("done", '<path d="m4 10.5 4 4 8-9"/>') +
  "</button>";

const icon = (name: string, paths: string): string =>
  `<svg class="${name}" width="16" height="16" viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">${paths}</svg>`;
