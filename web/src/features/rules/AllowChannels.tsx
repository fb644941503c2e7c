import { Group, Stack } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import { changeRules } from "./api.ts";
import { allowChannel, channelFault, channelNeeds } from "./channels-behind.ts";
import { SettingField } from "./SettingField.tsx";

interface AllowChannelsProps {
  agent: Agent;
  payment: Payment;
}

/** Offers the settings with which the payment channel of this payment is allowed, in one order. */
export function AllowChannels({ agent, payment }: AllowChannelsProps): ReactNode {
  const needs = channelNeeds(agent, payment);
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [isChecked, setChecked] = useState(false);
  const allow = useMutation({
    mutationFn: () =>
      changeRules(agent, allowChannel(agent, payment, typed), { title: "Allow channels" }),
    onSuccess: () => {
      notifications.show({ message: "The payment channel is now allowed." });
    },
    onSettled: invalidate.afterRules,
  });
  if (needs.length === 0)
    return <p role="status">The payment channel is now allowed. The agent can try again.</p>;
  const fields = needs.map((need) => {
    const value = typed[need.name] ?? need.least;
    return { ...need, value, fault: channelFault(need, value) };
  });
  const onSubmit = (event: React.FormEvent): void => {
    event.preventDefault();
    setChecked(true);
    if (fields.every(({ fault }) => fault === undefined) && !allow.isPending) allow.mutate();
  };
  return (
    <form onSubmit={onSubmit} noValidate>
      <Stack gap="sm">
        {fields.map(({ name, field, value, fault }) => (
          <SettingField
            key={name}
            field={field}
            value={value}
            error={isChecked ? fault : undefined}
            onChange={(next) => {
              setTyped({ ...typed, [name]: next });
            }}
          />
        ))}
        {allow.error && <ErrorNotice error={allow.error} />}
        <Group>
          <PendingButton
            type="submit"
            variant="filled"
            size="xs"
            pending={allow.isPending && "Allowing…"}
          >
            Allow channels
          </PendingButton>
        </Group>
      </Stack>
    </form>
  );
}
