// Goal: what stands at the addresses of Permit2 and x402's two proxies on the local chain has their interface and
// behaves like them.
import { readFileSync } from "node:fs";
import t from "tap";
import {
  permit2WitnessTypes,
  uptoPermit2WitnessTypes,
  x402ExactPermit2ProxyABI,
  x402UptoPermit2ProxyABI,
} from "@x402/evm";
import {
  BaseError,
  concat,
  decodeErrorResult,
  domainSeparator,
  encodeErrorResult,
  encodeFunctionData,
  keccak256,
  multicall3Abi,
  numberToHex,
  parseAbi,
  parseEventLogs,
  parseSignature,
  toHex,
  type Abi,
  type Address,
  type Hex,
  zeroAddress,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { formatAbiItem } from "viem/utils";
import { MULTICALL3, STAND_INS } from "../../server/local/chain-contracts.ts";
import { testAccount, testChain } from "../helpers/chain.ts";
import {
  approvePermit2,
  ERC20_ABI,
  EXACT_PROXY,
  isNonceUsed,
  PERMIT2,
  PERMIT2_ABI,
  permit2Message,
  signPermit2,
  UPTO_PROXY,
  type Permit2Message,
} from "../helpers/permit2.ts";

const artifactOf = (name: string) =>
  JSON.parse(
    readFileSync(new URL(`../../server/local/contracts/${name}.json`, import.meta.url), "utf8"),
  ) as { abi: Abi; deployedBytecode: Hex };
const TRANSFER = parseAbi([
  "event Transfer(address indexed from, address indexed to, uint256 value)",
]);
/** The published ABI of the upto proxy lacks its base contract's error for an amount of zero. */
const UPTO_ABI: Abi = [...x402UptoPermit2ProxyABI, ...parseAbi(["error InvalidAmount()"])];

/** Emitted when the token refuses a permit. The published ABI of the proxies lacks it. */
const PERMIT_FAILED = parseAbi([
  "event EIP2612PermitFailedWithReason(address indexed token, address indexed owner, string reason)",
]);
/** The order of secp256k1: where `s` verifies, this minus `s` does too. */
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

function dataOf(error: BaseError): Hex | undefined {
  const revert = error.walk((cause) => typeof (cause as { data?: unknown }).data === "string");
  return (revert as { data?: Hex } | null)?.data;
}

t.test("the contracts", async (t) => {
  const chain = await testChain(t);
  const { publicClient } = chain;
  const sender = chain.walletClient(chain.relayer);
  const payer = privateKeyToAccount(generatePrivateKey());
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  await chain.mint(payer.address, 1_000_000n);
  await approvePermit2(chain, [payer]);
  const balance = (account: Address): Promise<bigint> =>
    publicClient.readContract({
      address: chain.usdc,
      abi: ERC20_ABI,
      functionName: "balanceOf",
      args: [account],
    });
  const permitOf = ({ permitted, nonce, deadline }: Permit2Message) => ({
    permitted,
    nonce,
    deadline,
  });
  /** The error's name, or "ok" when it was mined. */
  const tried = async (to: Address, data: Hex, abi: Abi, from = chain.relayer): Promise<string> => {
    try {
      await publicClient.call({ account: from.address, to, data });
    } catch (error) {
      const data = error instanceof BaseError && dataOf(error);
      if (!data) return String(error);
      return decodeErrorResult({ abi: [...abi, ...PERMIT2_ABI], data }).errorName;
    }
    const hash = await chain.walletClient(from).sendTransaction({ to, data });
    const receipt = await publicClient.waitForTransactionReceipt({ hash });
    return receipt.status === "success" ? "ok" : "reverted";
  };
  const settle = async (message: Permit2Message, given: { signature?: Hex } = {}) => {
    const { to, validAfter } = message.witness;
    const signature = given.signature ?? (await signPermit2(chain, payer, message));
    const args = [permitOf(message), message.from, { to, validAfter }, signature] as const;
    const abi = x402ExactPermit2ProxyABI;
    return encodeFunctionData({ abi, functionName: "settle", args });
  };
  const settleUpto = async (message: Permit2Message, amount: bigint) => {
    const signature = await signPermit2(chain, payer, message);
    const args = [permitOf(message), amount, message.from, message.witness, signature];
    return encodeFunctionData({ abi: UPTO_ABI, functionName: "settle", args });
  };

  await t.test("our code at the published addresses, with their interface", async (t) => {
    const { LocalPermit2, LocalExactPermit2Proxy, LocalUptoPermit2Proxy } = STAND_INS;
    t.equal(LocalPermit2, PERMIT2);
    t.equal(LocalExactPermit2Proxy, EXACT_PROXY);
    t.equal(LocalUptoPermit2Proxy, UPTO_PROXY);
    /** Name, types and what is returned. */
    const signatures = (abi: Abi): string[] =>
      abi.map((item) => {
        const outputs = "outputs" in item ? item.outputs : [];
        const indexed =
          item.type === "event" ? item.inputs.map(({ indexed }) => indexed === true) : [];
        return item.type === "constructor" || item.type === "fallback" || item.type === "receive"
          ? item.type
          : `${item.type} ${formatAbiItem(item)} ${outputs.map(({ type }) => type).join()}${indexed.join()}`;
      });
    const published: [keyof typeof STAND_INS, Abi][] = [
      ["LocalPermit2", PERMIT2_ABI],
      ["LocalExactPermit2Proxy", [...x402ExactPermit2ProxyABI, ...PERMIT_FAILED]],
      ["LocalUptoPermit2Proxy", [...UPTO_ABI, ...PERMIT_FAILED]],
    ];
    for (const [name, abi] of published) {
      const { abi: own, deployedBytecode } = artifactOf(name);
      t.equal(await publicClient.getCode({ address: STAND_INS[name] }), deployedBytecode, name);
      const has = new Set(signatures(own));
      t.same(
        signatures(abi).filter((signature) => !has.has(signature)),
        // Only a constructor has this error, and ours has none.
        name === "LocalPermit2" ? [] : ["error InvalidPermit2Address() "],
        `${name} lacks nothing that is published`,
      );
    }
  });

  await t.test("the proxies' constants are the signed types", async (t) => {
    const constants = await Promise.all(
      [EXACT_PROXY, UPTO_PROXY].flatMap((address) =>
        (["PERMIT2", "WITNESS_TYPEHASH", "WITNESS_TYPE_STRING"] as const).map((functionName) =>
          publicClient.readContract({ address, abi: x402ExactPermit2ProxyABI, functionName }),
        ),
      ),
    );
    const [exact, upto] = [permit2WitnessTypes, uptoPermit2WitnessTypes].map(
      ({ Witness }) => `Witness(${Witness.map(({ type, name }) => `${type} ${name}`).join()})`,
    ) as [string, string];
    const stub = "Witness witness)TokenPermissions(address token,uint256 amount)";
    t.same(
      constants,
      [exact, upto].flatMap((type) => [PERMIT2, keccak256(toHex(type)), stub + type]),
    );
  });

  await t.test("Permit2's domain separator has its own address and this chain", async (t) => {
    const separator = await publicClient.readContract({
      address: PERMIT2,
      abi: PERMIT2_ABI,
      functionName: "DOMAIN_SEPARATOR",
    });
    const domain = { name: "Permit2", chainId: chain.chainId, verifyingContract: PERMIT2 } as const;
    t.equal(separator, domainSeparator({ domain }));
  });

  await t.test("exact: moves the signed amount to the witness, once", async (t) => {
    const message = permit2Message(chain, payer.address, { to: payee });
    const data = await settle(message);
    t.notOk(await isNonceUsed(chain, payer.address, message.nonce));
    const hash = await sender.sendTransaction({ to: EXACT_PROXY, data });
    const receipt = await publicClient.waitForTransactionReceipt({ hash });
    t.equal(await balance(payee), 1_000n);
    t.ok(await isNonceUsed(chain, payer.address, message.nonce));
    t.same(
      parseEventLogs({
        abi: [...TRANSFER, ...x402ExactPermit2ProxyABI],
        logs: receipt.logs,
      }).map(({ eventName, address }) => [eventName, address.toLowerCase()]),
      [
        ["Transfer", chain.usdc.toLowerCase()],
        ["Settled", EXACT_PROXY.toLowerCase()],
      ],
      "no event contains Permit2's nonce",
    );
    t.comment(`exact over Permit2 alone: ${receipt.gasUsed} gas`);
    t.equal(await tried(EXACT_PROXY, data, x402ExactPermit2ProxyABI as Abi), "InvalidNonce");
  });

  await t.test("exact: no field can be changed", async (t) => {
    const message = permit2Message(chain, payer.address, { to: payee });
    const signature = await signPermit2(chain, payer, message);
    const bent = (change: Partial<Permit2Message>) =>
      settle({ ...message, ...change }, { signature }).then((data) =>
        tried(EXACT_PROXY, data, x402ExactPermit2ProxyABI as Abi),
      );
    const to = testAccount(77).address;
    t.equal(await bent({ witness: { to, validAfter: 0n } }), "InvalidSigner", "another payee");
    t.equal(await bent({ nonce: message.nonce ^ 1n }), "InvalidSigner", "another nonce");
    const more = { token: chain.usdc, amount: 2_000n };
    t.equal(await bent({ permitted: more }), "InvalidSigner", "another amount");
    const early = { to: payee, validAfter: 2n ** 40n };
    t.equal(await bent({ witness: early }), "PaymentTooEarly");
    t.equal(await bent({ deadline: 1n }), "SignatureExpired");
    // What is wrong with the payment itself is found before Permit2 is called.
    const late = { deadline: 1n, permitted: { token: chain.usdc, amount: 0n } };
    t.equal(await bent(late), "InvalidAmount");
    t.equal(await bent({ deadline: 1n, from: zeroAddress }), "InvalidOwner");
    const nobody = { to: zeroAddress, validAfter: 2n ** 40n };
    t.equal(await bent({ witness: nobody }), "InvalidDestination");
    const direct = permit2Message(chain, payer.address, { to: payee, spender: UPTO_PROXY });
    t.equal(
      await tried(EXACT_PROXY, await settle(direct), x402ExactPermit2ProxyABI as Abi),
      "InvalidSigner",
      "signed for another spender",
    );
  });

  await t.test("which signatures are valid", async (t) => {
    const given = async (of: (signature: Hex) => Hex): Promise<string> => {
      const message = permit2Message(chain, payer.address, { to: payee });
      const data = await settle(message, {
        signature: of(await signPermit2(chain, payer, message)),
      });
      return tried(EXACT_PROXY, data, x402ExactPermit2ProxyABI);
    };
    const parts = (signature: Hex): { r: Hex; s: bigint; parity: number } => {
      const { r, s, yParity } = parseSignature(signature);
      return { r, s: BigInt(s), parity: yParity };
    };
    const compact = (signature: Hex): Hex => {
      const { r, s, parity } = parts(signature);
      return concat([r, numberToHex(s | (BigInt(parity) << 255n), { size: 32 })]);
    };
    const highS = (signature: Hex): Hex => {
      const { r, s, parity } = parts(signature);
      return concat([r, numberToHex(ORDER - s, { size: 32 }), numberToHex(28 - parity)]);
    };
    t.equal(await given(compact), "ok", "64 bytes (EIP-2098)");
    t.equal(await given(highS), "ok", "a high s");
    t.equal(await given((signature) => `${signature.slice(0, -2)}00` as Hex), "InvalidSignature");
    t.equal(await given(() => toHex(1, { size: 65 })), "InvalidSignature");
    for (const length of [0, 63, 66, 96])
      t.equal(await given(() => `0x${"01".repeat(length)}`), "InvalidSignatureLength");
  });

  await t.test("a payer with code: its code decides about a signature (ERC-1271)", async (t) => {
    const own = parseAbi(["error WalletsOwn()"]);
    const ownError = encodeErrorResult({ abi: own }).slice(2);
    const answers: [code: Hex, expected: string][] = [
      ["0x631626ba7e60e01b60005260206000f3", "ok"],
      ["0x600060005260206000f3", "InvalidContractSignature"],
      [`0x63${ownError}6000526004601cfd`, "WalletsOwn"],
    ];
    for (const [code, expected] of answers) {
      const wallet = privateKeyToAccount(generatePrivateKey());
      await chain.mint(wallet.address, 1_000n);
      await approvePermit2(chain, [wallet]);
      await chain.testClient.setCode({ address: wallet.address, bytecode: code });
      const message = permit2Message(chain, wallet.address, { to: payee });
      const data = await settle(message, { signature: "0x" });
      t.equal(await tried(EXACT_PROXY, data, [...x402ExactPermit2ProxyABI, ...own]), expected);
    }
  });

  await t.test("a token must return true or nothing", async (t) => {
    const answers: [code: Hex, expected: string][] = [
      ["0x00", "ok"],
      ["0x600160005260206000f3", "ok"],
      ["0x600060005260206000f3", "Error"],
      ["0x600260005260206000f3", "Error"],
      ["0x6001600052601f6000f3", "Error"],
      ["0x60006000fd", "Error"],
    ];
    const token = privateKeyToAccount(generatePrivateKey()).address;
    for (const [code, expected] of answers) {
      await chain.testClient.setCode({ address: token, bytecode: code });
      const permitted = { token, amount: 1n };
      const data = await settle(permit2Message(chain, payer.address, { to: payee, permitted }));
      t.equal(await tried(EXACT_PROXY, data, x402ExactPermit2ProxyABI as Abi), expected, code);
    }
    const tooMuch = permit2Message(chain, payer.address, { to: payee, amount: 10n ** 12n });
    const call = { account: chain.relayer.address, to: EXACT_PROXY, data: await settle(tooMuch) };
    await t.rejects(publicClient.call(call), /TRANSFER_FROM_FAILED/);
  });

  await t.test("the token's permit is used, or an existing allowance", async (t) => {
    const withPermit = async (
      owner: typeof payer,
      { value = 1_000n, deadline = 2n ** 40n }: { value?: bigint; deadline?: bigint },
    ) => {
      const signature = await owner.signTypedData({
        domain: {
          name: "USDC",
          version: "2",
          chainId: chain.chainId,
          verifyingContract: chain.usdc,
        },
        primaryType: "Permit",
        types: {
          Permit: [
            { name: "owner", type: "address" },
            { name: "spender", type: "address" },
            { name: "value", type: "uint256" },
            { name: "nonce", type: "uint256" },
            { name: "deadline", type: "uint256" },
          ],
        },
        message: { owner: owner.address, spender: PERMIT2, value, nonce: 0n, deadline },
      });
      const { r, s, v } = parseSignature(signature);
      const message = permit2Message(chain, owner.address, { to: payee });
      const { to, validAfter } = message.witness;
      const payment = await signPermit2(chain, owner, message);
      const permit2612 = { value, deadline, r, s, v: Number(v) };
      return encodeFunctionData({
        abi: x402ExactPermit2ProxyABI,
        functionName: "settleWithPermit",
        args: [permit2612, permitOf(message), owner.address, { to, validAfter }, payment],
      });
    };
    const logsOf = async (data: Hex) => {
      const hash = await sender.sendTransaction({ to: EXACT_PROXY, data });
      const { logs } = await publicClient.waitForTransactionReceipt({ hash });
      return parseEventLogs({
        abi: [...TRANSFER, ...PERMIT_FAILED, ...x402ExactPermit2ProxyABI],
        logs,
      });
    };
    const fresh = privateKeyToAccount(generatePrivateKey());
    await chain.mint(fresh.address, 10_000n);
    const refused = { deadline: 1n };
    const proxyAbi = x402ExactPermit2ProxyABI as Abi;
    t.equal(await tried(EXACT_PROXY, await withPermit(fresh, refused), proxyAbi), "Error");
    t.equal(
      await tried(EXACT_PROXY, await withPermit(fresh, { value: 1_001n }), proxyAbi),
      "Permit2612AmountMismatch",
    );
    t.same(
      (await logsOf(await withPermit(fresh, {}))).map(({ eventName }) => eventName),
      ["Transfer", "SettledWithPermit"],
    );
    t.match(await logsOf(await withPermit(payer, refused)), [
      {
        eventName: "EIP2612PermitFailedWithReason",
        args: { owner: payer.address, reason: "FiatTokenV2: permit is expired" },
      },
      { eventName: "Transfer" },
      { eventName: "SettledWithPermit" },
    ]);
  });

  await t.test("Permit2 itself moves no more than the owner signed", async (t) => {
    const data = encodeFunctionData({
      abi: PERMIT2_ABI,
      functionName: "permitWitnessTransferFrom",
      args: [
        { permitted: { token: chain.usdc, amount: 10n }, nonce: 1n, deadline: 2n ** 40n },
        { to: payee, requestedAmount: 11n },
        payer.address,
        toHex(1, { size: 32 }),
        "Witness witness)",
        "0x",
      ],
    });
    t.equal(await tried(PERMIT2, data, PERMIT2_ABI), "InvalidAmount");
  });

  await t.test("a nonce that its payer invalidated is used", async (t) => {
    const message = permit2Message(chain, payer.address, { to: payee });
    const data = encodeFunctionData({
      abi: PERMIT2_ABI,
      functionName: "invalidateUnorderedNonces",
      args: [message.nonce >> 8n, 1n << (message.nonce & 255n)],
    });
    t.equal(await tried(PERMIT2, data, PERMIT2_ABI, { ...payer, privateKey: "0x" }), "ok");
    t.ok(await isNonceUsed(chain, payer.address, message.nonce));
    t.equal(
      await tried(EXACT_PROXY, await settle(message), x402ExactPermit2ProxyABI as Abi),
      "InvalidNonce",
    );
  });

  await t.test("upto: only the named account, at most the signed amount", async (t) => {
    const facilitator = chain.relayer.address;
    const message = permit2Message(chain, payer.address, {
      to: payee,
      amount: 5_000n,
      facilitator,
    });
    const before = await balance(payee);
    const upto = async (amount: bigint, from = chain.relayer): Promise<string> =>
      tried(UPTO_PROXY, await settleUpto(message, amount), UPTO_ABI, from);
    t.equal(await upto(5_001n), "AmountExceedsPermitted");
    t.equal(await upto(0n), "InvalidAmount");
    t.equal(await upto(1_000n, chain.admin), "UnauthorizedFacilitator");
    const batched = encodeFunctionData({
      abi: multicall3Abi,
      functionName: "aggregate3",
      args: [
        [
          {
            target: UPTO_PROXY,
            allowFailure: true,
            callData: await settleUpto(message, 1_000n),
          },
        ],
      ],
    });
    t.equal(await tried(MULTICALL3, batched, multicall3Abi), "ok");
    t.equal(await balance(payee), before, "a batch contract is not the named account");
    t.equal(await upto(1_234n), "ok");
    t.equal(await balance(payee), before + 1_234n);
    t.equal(await upto(1n), "InvalidNonce", "once, although some of the maximum is left");
  });
});
