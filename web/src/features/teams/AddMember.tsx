import { Group, NativeSelect, Stack, TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { type ReactNode, useState } from "react";
import { Button } from "@mantine/core";
import { MAX_MEMBERS, type Role } from "../../../../packages/rules/src/teams.ts";
import { PlusIcon } from "../../components/icons.tsx";
import { Fields, Section } from "../../components/Layout.tsx";
import { checkAddress, isSameAddress } from "../../lib/address.ts";
import type { MemberTerms } from "../../lib/orders/members.ts";
import { ROLES } from "./members.ts";

/** Adds a person to the draft. */
export function AddMember({
  members,
  onAdd,
}: {
  members: readonly MemberTerms[];
  onAdd: (member: MemberTerms) => void;
}): ReactNode {
  const [name, setName] = useInputState("");
  const [address, setAddress] = useInputState("");
  const [role, setRole] = useInputState("approver");
  const [problem, setProblem] = useState<{ name?: string; address?: string }>({});
  const add = async (): Promise<void> => {
    const check = await checkAddress(address);
    if (name.trim() === "") setProblem({ name: "Give the person a name." });
    else if (!check.ok) setProblem({ address: check.reason });
    else if (members.some((member) => isSameAddress(member.address, check.address)))
      setProblem({ address: "This person is in the list already." });
    else {
      onAdd({ name: name.trim(), address: check.address, role: role as Role });
      setName("");
      setAddress("");
      setProblem({});
    }
  };
  return (
    <Section
      title="Add a person"
      hint="The person makes an account first, with a passkey or a wallet, and sends you its address. An approver or admin then accepts by signing."
    >
      <form
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          void add();
        }}
      >
        <Stack gap="sm">
          <Fields>
            <TextInput
              label="Name"
              placeholder="Bob"
              maxLength={60}
              value={name}
              error={problem.name}
              onChange={setName}
            />
            <TextInput
              label="Address of the account"
              placeholder="0x…"
              value={address}
              error={problem.address}
              onChange={setAddress}
            />
            <NativeSelect label="Role" value={role} data={ROLES} onChange={setRole} />
          </Fields>
          <Group>
            <Button type="submit" disabled={members.length >= MAX_MEMBERS}>
              <PlusIcon size={16} />
              Add to the list
            </Button>
          </Group>
        </Stack>
      </form>
    </Section>
  );
}
