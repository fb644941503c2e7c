import { Badge, Button, Group, Stack, Switch, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Note, Section } from "../../components/Layout.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { toastFailure } from "../../components/toast.ts";
import { forgetPush, isPushBlocked, isPushSupported, switchPushOn } from "../../lib/push.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { PushDevice } from "../../lib/wire.ts";
import { NotInTeams, OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import { describeEvents } from "./device-groups.ts";
import { DeviceTypes } from "./DeviceTypes.tsx";
import { devicesQuery, ownHashQuery, removeDevice, testDevice } from "./api.ts";
import styles from "./Notifications.module.css";

/** The devices that messages are pushed to: this one, and the owner's others. */
export function Devices(): ReactNode {
  const query = useQuery(devicesQuery);
  const ownHash = useQuery(ownHashQuery).data ?? null;
  const devices = query.data?.items ?? [];
  const own = devices.find(({ endpointHash }) => endpointHash === ownHash);
  return (
    <Stack gap="lg">
      <NotInTeams>
        <OwnerOnly>
          <Section
            title="On this device"
            hint="Messages appear here although no page of Purser is open: requests for approval at once, limits, new keys and sign-ins. Opening one decides nothing."
          >
            <QueryStatus query={query} what="devices" failed="The devices could not be loaded">
              <Skeleton shape="row" count={1} />
            </QueryStatus>
            {query.data && <ThisDevice publicKey={query.data.publicKey} own={own} />}
          </Section>
        </OwnerOnly>
      </NotInTeams>
      {devices.length > 0 && (
        <Section flush title="Devices" hint="Ending a session also removes its device.">
          <ul>
            {devices.map((device) => (
              <Row
                key={device.id}
                device={device}
                others={devices.filter((other) => other !== device)}
                isOwn={device === own}
              />
            ))}
          </ul>
        </Section>
      )}
    </Stack>
  );
}

function ThisDevice({
  publicKey,
  own,
}: {
  publicKey: string | null;
  own: PushDevice | undefined;
}): ReactNode {
  const { address } = useOwner();
  const change = useMutation({
    mutationFn: async (isOn: boolean) => {
      if (isOn) await switchPushOn(publicKey ?? "", address);
      else {
        if (own) await removeDevice(own.id);
        await forgetPush();
      }
    },
    onError: toastFailure("The setting was not changed"),
    onSettled: invalidate.afterPush,
  });
  if (publicKey === null)
    return (
      <Note color="yellow">
        This service is not set up to send messages to devices. Use e-mail or a webhook, or ask the
        operator to set VAPID_KEYS.
      </Note>
    );
  if (!isPushSupported())
    return (
      <Note>
        This browser receives no messages. On an iPhone or iPad, first add Purser to the home
        screen, then open it from there.
      </Note>
    );
  if (isPushBlocked())
    return (
      <Note color="yellow">
        Notifications of this site are blocked. Allow them in the browser&rsquo;s settings, then
        reload this page.
      </Note>
    );
  return (
    <Switch
      label="Notify me on this device"
      checked={change.isPending ? change.variables : own !== undefined}
      disabled={change.isPending}
      onChange={(event) => {
        change.mutate(event.currentTarget.checked);
      }}
    />
  );
}

interface RowProps {
  device: PushDevice;
  others: readonly PushDevice[];
  isOwn: boolean;
}

function Row({ device, others, isOwn }: RowProps): ReactNode {
  const [isChoosing, choosing] = useDisclosure();
  const { id, label, service, deliveredAt, failingSince, lastError, createdAt } = device;
  const test = useMutation({
    mutationFn: () => testDevice(id),
    onSuccess: ({ error }) => {
      notifications.show(
        error === null
          ? { message: "Sent. It should appear on the device in a moment." }
          : { color: "red", title: "The test was not sent", message: error },
      );
    },
    onError: toastFailure("The test was not sent"),
    onSettled: invalidate.afterPush,
  });
  const remove = useMutation({
    mutationFn: async () => {
      await removeDevice(id);
      if (isOwn) await forgetPush();
    },
    onSuccess: () => {
      notifications.show({ message: "Device removed." });
    },
    onError: toastFailure("The device was not removed"),
    onSettled: invalidate.afterPush,
  });
  return (
    <li className="list-row">
      <Group justify="space-between" gap="md">
        <div className={styles.what}>
          <span className={styles.url}>
            {label} {isOwn && <Badge color="green">This device</Badge>}
          </span>
          <Text span c="dimmed" size="sm" className={styles.meta}>
            {service} · added <TimeAgo iso={createdAt} />
            {deliveredAt !== null && (
              <>
                {" "}
                · last message <TimeAgo iso={deliveredAt} />
              </>
            )}
          </Text>
          <Text span c="dimmed" size="sm" className={styles.meta}>
            Gets: {describeEvents(device.types)}
          </Text>
          {failingSince !== null && (
            <Text span c="red" size="sm" className={styles.meta}>
              Failing since <TimeAgo iso={failingSince} />: {lastError}
            </Text>
          )}
        </div>
        <Group>
          <OwnerOnly>
            <Button size="xs" aria-expanded={isChoosing} onClick={choosing.toggle}>
              Choose events<span className="sr-only"> for {label}</span>
            </Button>
            <MutationButton size="xs" mutation={test} pending="Sending…">
              Send a test<span className="sr-only"> to {label}</span>
            </MutationButton>
          </OwnerOnly>
          <MutationButton size="xs" mutation={remove} pending="Removing…">
            Remove<span className="sr-only"> {label}</span>
          </MutationButton>
        </Group>
      </Group>
      {isChoosing && <DeviceTypes device={device} others={others} onDone={choosing.close} />}
    </li>
  );
}
