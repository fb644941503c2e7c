import { Group, NativeSelect, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { parseUsdc } from "../../lib/money.ts";
import { startOfDay } from "../../lib/time.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import { useInfo } from "../../shared/info.ts";
import type { SettlementFilter } from "./api.ts";
import { STATUS_OPTIONS } from "./words.ts";

export type Choice = ReturnType<typeof useChoice>;

/** The filter in the URL, and the valid part of it for the request. */
export function useChoice() {
  const [status, setStatus] = useParameter("status");
  const [network, setNetwork] = useParameter("network");
  const [from, setFrom] = useParameter("from");
  const [to, setTo] = useParameter("to");
  const [payer, setPayer] = useParameter("payer");
  const [minimum, setMinimum] = useParameter("minimum");
  const [payment, setPayment] = useParameter("payment");
  const isPayment = /^(0x[0-9a-f]{64}|pay_\w{1,60})$/i.test(payment.trim());
  const isAddress = /^0x[0-9a-fA-F]{40}$/.test(payer.trim());
  const isAmount = (parseUsdc(minimum) ?? 0n) > 0n;
  const filter: SettlementFilter = {
    ...(status !== "" && { status }),
    ...(network !== "" && { network }),
    ...(from !== "" && { from: startOfDay(from) }),
    ...(to !== "" && { to: startOfDay(to, 1) }),
    ...(isAddress && { payer: payer.trim() }),
    ...(isPayment && { payment: payment.trim() }),
    ...(isAmount && { minimum: minimum.trim() }),
  };
  return {
    filter,
    status: { value: status, onChange: setStatus },
    network: { value: network, onChange: setNetwork },
    from: { value: from, onChange: setFrom },
    to: { value: to, onChange: setTo },
    payment: {
      value: payment,
      onChange: setPayment,
      error: payment !== "" && !isPayment,
    },
    payer: { value: payer, onChange: setPayer, error: payer !== "" && !isAddress },
    minimum: { value: minimum, onChange: setMinimum, error: minimum !== "" && !isAmount },
  };
}

export function Filters({ choice }: { choice: Choice }): ReactNode {
  const networks = useInfo()?.networks ?? [];
  return (
    <Group align="flex-end">
      <TextInput
        flex="1 1 100%"
        aria-label="Transaction or payment id"
        placeholder="Transaction or payment id"
        {...choice.payment}
      />
      <NativeSelect aria-label="Status" data={STATUS_OPTIONS} {...choice.status} />
      {networks.length > 1 && (
        <NativeSelect
          aria-label="Network"
          data={[
            { value: "", label: "Every network" },
            ...networks.map(({ id, name }) => ({ value: id, label: name })),
          ]}
          {...choice.network}
        />
      )}
      <TextInput flex="1 1 150px" miw={0} label="From day" type="date" {...choice.from} />
      <TextInput flex="1 1 150px" miw={0} label="To day" type="date" {...choice.to} />
      <TextInput flex="1 1 130px" aria-label="Payer" placeholder="Payer 0x…" {...choice.payer} />
      <TextInput
        flex="1 1 170px"
        aria-label="At least, USDC"
        placeholder="At least, USDC"
        {...choice.minimum}
      />
    </Group>
  );
}
