// Somebody outside pays into agents' wallets.
import type { Address } from "viem";
import { addressWord, selector, word } from "../chain/abi.ts";
import type { Kind } from "../kind.ts";
import { pause } from "../world.ts";

const PAYER: Address = "0x0000000000000000000000000000000000d0d0d0";

export const depositor: Kind = {
  weight: 1,
  async play(world, { random }) {
    const { chain } = world;
    for (let count = random.int(1, 3); count > 0; count -= 1) {
      const { wallet } = random.pick(world.active);
      const amountAtomic = world.newAmount(BigInt(random.int(1, 40)) * 100_000n);
      if (random.next() < 0.5) chain.deposit(wallet, amountAtomic);
      else {
        chain.mint(PAYER, amountAtomic);
        const data =
          `0x${selector("transfer(address,uint256)")}${addressWord(wallet)}${word(amountAtomic)}` as const;
        chain.sendAs(PAYER, { to: chain.usdc, data });
      }
      await pause(random.int(0, 6_000));
    }
  },
};
