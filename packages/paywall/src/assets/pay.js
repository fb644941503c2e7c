// Pays for the page's own URL with a wallet in this browser. The wallet signs an EIP-3009 authorization for
// exactly the requested amount; the seller's facilitator sends the transaction and pays the gas.
const { dataset } = document.body;
const walletList = document.getElementById("wallets");
const statusLine = document.getElementById("status");
const known = new Set();
let isBusy = false;
showStatus("Looking for a wallet in this browser.");
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => void copy(button));
}

window.addEventListener("eip6963:announceProvider", (event) => {
  const { info, provider } = event.detail;
  offer(provider, info.name);
});
window.dispatchEvent(new Event("eip6963:requestProvider"));
// Older wallets do not announce themselves (EIP-6963) and only set window.ethereum.
setTimeout(() => {
  if (known.size === 0 && window.ethereum) offer(window.ethereum, "browser wallet");
  if (known.size === 0)
    showStatus("No wallet found in this browser. Install one, or use an x402 client.");
}, 300);

function offer(provider, name) {
  if (known.has(provider)) return;
  known.add(provider);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = `Pay with ${name}`;
  button.addEventListener("click", () => void pay(provider));
  walletList.append(button);
  showStatus("You sign one authorization and pay no gas.");
}

async function pay(provider) {
  if (isBusy) return;
  setBusy(true);
  let isSigned = false;
  try {
    const required = await readTerms();
    const terms = required.accepts.find(isPayable);
    if (!terms) throw new Error("The terms changed. Reload the page.");
    showStatus("Waiting for your wallet.");
    const [from] = await provider.request({ method: "eth_requestAccounts" });
    await switchChain(provider, Number(terms.network.split(":")[1]));
    const payload = await sign(provider, from, terms);
    showStatus("Settling on chain.");
    const { resource, extensions } = required;
    const proof = {
      x402Version: 2,
      resource,
      accepted: terms,
      payload,
      ...(extensions && { extensions }),
    };
    isSigned = true;
    const headers = { accept: "application/json", "payment-signature": encode(proof) };
    await show(await fetch(location.href, { headers }));
  } catch (error) {
    const reason = error?.message ?? error;
    if (isSigned)
      showStatus(
        `The response was lost (${reason}). Check in your wallet whether it was paid.`,
        "bad",
      );
    else if (error?.code === 4001) showStatus("You declined. Nothing was paid.");
    else showStatus(`Nothing was paid: ${reason}`, "bad");
  } finally {
    setBusy(false);
  }
}

/** Only the kind of entry that the page shows, because `sign` makes no other payment. */
const isPayable = ({ scheme, network, extra }) =>
  network === dataset.network &&
  scheme === dataset.scheme &&
  (extra.assetTransferMethod ?? "") === dataset.transfer;

async function readTerms() {
  const answer = await fetch(location.href, { headers: { accept: "application/json" } });
  const header = answer.headers.get("payment-required");
  if (answer.status !== 402 || !header)
    throw new Error("This page does not request payment now. Reload it.");
  return JSON.parse(
    new TextDecoder().decode(Uint8Array.from(atob(header), (char) => char.charCodeAt(0))),
  );
}

async function switchChain(provider, chainId) {
  const hex = `0x${chainId.toString(16)}`;
  if (Number(await provider.request({ method: "eth_chainId" })) === chainId) return;
  try {
    await provider.request({ method: "wallet_switchEthereumChain", params: [{ chainId: hex }] });
  } catch (error) {
    if (error?.code !== 4902 && error?.data?.originalError?.code !== 4902) throw error;
    const chain = {
      chainId: hex,
      chainName: dataset.chainName,
      rpcUrls: [dataset.rpcUrl],
      blockExplorerUrls: [dataset.explorer],
      nativeCurrency: { name: dataset.symbol, symbol: dataset.symbol, decimals: 18 },
    };
    await provider.request({ method: "wallet_addEthereumChain", params: [chain] });
  }
}

async function sign(provider, from, terms) {
  const nonce = [...crypto.getRandomValues(new Uint8Array(32))];
  const authorization = {
    from,
    to: terms.payTo,
    value: terms.amount,
    validAfter: "0",
    validBefore: String(Math.floor(Date.now() / 1000) + terms.maxTimeoutSeconds),
    nonce: `0x${nonce.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`,
  };
  const typedData = {
    types: {
      EIP712Domain: fields("name:string version:string chainId:uint256 verifyingContract:address"),
      TransferWithAuthorization: fields(
        "from:address to:address value:uint256 validAfter:uint256 validBefore:uint256 nonce:bytes32",
      ),
    },
    primaryType: "TransferWithAuthorization",
    domain: {
      name: terms.extra.name,
      version: terms.extra.version,
      chainId: Number(terms.network.split(":")[1]),
      verifyingContract: terms.asset,
    },
    message: authorization,
  };
  const signature = await provider.request({
    method: "eth_signTypedData_v4",
    params: [from, JSON.stringify(typedData)],
  });
  return { signature, authorization };
}

const fields = (text) =>
  text.split(" ").map((part) => ({ name: part.split(":")[0], type: part.split(":")[1] }));

const encode = (value) =>
  btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value))));

async function show(answer) {
  const text = await answer.text();
  const receipt = answer.headers.get("payment-response");
  const { transaction, errorReason } = receipt ? JSON.parse(atob(receipt)) : {};
  if (!answer.ok) {
    const unknown = errorReason === "settlement_pending" || answer.status >= 500;
    const outcome = transaction
      ? `the authorization was used in ${transaction}`
      : "nothing was paid";
    showStatus(
      `No answer (${errorReason ?? answer.status}): ${unknown && !transaction ? "its outcome is not known yet" : outcome}.`,
      "bad",
    );
    return;
  }
  showStatus("Paid. Each response is a new payment; reload the page to request another.", "ok");
  const link = document.querySelector("#receipt a");
  link.href = `${dataset.explorer}/tx/${transaction}`;
  link.textContent = transaction;
  document.querySelector("#receipt button").dataset.copy = transaction;
  document.getElementById("data").textContent = pretty(text);
  document.getElementById("result").hidden = false;
  walletList.hidden = true;
  // The pressed button is hidden now, so the focus moves to the receipt.
  document.getElementById("bought").focus();
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function copy(button) {
  const copied = document.getElementById("copied");
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    copied.textContent = "Copied";
    button.dataset.done = "";
  } catch {
    copied.textContent = "This browser does not allow copying";
  }
  button.title = copied.textContent;
  setTimeout(() => {
    copied.textContent = "";
    button.title = button.getAttribute("aria-label");
    delete button.dataset.done;
  }, 1_800);
}

/** `aria-disabled` instead of `disabled`, so that the button keeps the focus. */
function setBusy(busy) {
  isBusy = busy;
  for (const button of walletList.children) button.setAttribute("aria-disabled", String(busy));
}

function showStatus(text, tone = "plain") {
  statusLine.hidden = false;
  statusLine.dataset.tone = tone;
  statusLine.textContent = text;
}
